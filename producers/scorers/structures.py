"""JSON in answers, checked against a schema by jsonschema (extra `scorers`)."""

import re
from collections.abc import Mapping
from typing import Any

from seamlessflow.infra.errors import SeamlessFlowError
from seamlessflow.producers.scorers.answers import after_reasoning
from seamlessflow.schemas.json_text import read_json

_FENCE = re.compile(r"```(?:json)?[ \t]*\n(.*?)```", re.DOTALL | re.IGNORECASE)


class ScorerUnusable(SeamlessFlowError):
    """A scorer whose package is not installed."""

    lasting = True

    def __init__(self, name: str, package: str) -> None:
        self.name = name
        self.package = package
        remedy = "pip install 'seamlessflow[scorers]', or scripts/setup in a checkout"
        super().__init__(f"the scorer {name} needs {package}: {remedy}")


def json_schema(answer: str, reference: object) -> float:
    """Return 1 if the answer is JSON that the schema `reference` accepts, else 0.

    The JSON is the last fenced block, else the whole text after the reasoning. Nothing is fetched
    for a `$ref`. Raises `ValueError` for a reference that is no schema.
    """
    if not isinstance(reference, Mapping | bool):
        raise ValueError("the reference is no JSON schema, an object")
    try:
        # Not earlier: jsonschema belongs to an optional extra.
        from jsonschema import exceptions, validators
        from referencing import Registry
    except ImportError as error:
        raise ScorerUnusable("json_schema", "jsonschema") from error
    kind: Any = validators.validator_for(reference, default=validators.Draft202012Validator)
    try:
        kind.check_schema(reference)
    except exceptions.SchemaError as error:
        raise ValueError(f"the reference is no JSON schema: {error.message}") from error
    text = after_reasoning(answer)
    blocks = _FENCE.findall(text)
    try:
        value = read_json((blocks[-1] if blocks else text).encode())
    except ValueError:
        return 0.0
    try:
        return float(kind(reference, registry=Registry()).is_valid(value))
    except exceptions._WrappedReferencingError as error:
        raise ValueError(f"the reference has a $ref that it lacks: {error}") from error
