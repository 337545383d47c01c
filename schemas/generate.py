"""Generator for the files made from `.avsc` files: `python -m seamlessflow.schemas.generate`.

The schemas are the source; programs and mypy use the dataclasses in `records.py`. New schema
versions are kept in `versions/`, and this release's versions are listed in `manifests/`.
"""

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from seamlessflow.schemas.registry import (
    NAMESPACE,
    Schema,
    raw_schemas,
    schema_fingerprint,
    self_contained,
)

_PRIMITIVES = {
    "string": "str",
    "bytes": "bytes",
    "int": "int",
    "long": "int",
    "double": "float",
    "boolean": "bool",
    "null": "None",
}
_HEADER = '''"""Frozen dataclasses, one for each schema, with the same name and fields.

Written by `python -m seamlessflow.schemas.generate` from the `.avsc` files, which explain each
field.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field


class Record:
    """Base of all classes that have a schema of their own."""
'''


def records_source(raw: dict[str, Schema]) -> str:
    """Return the text of `records.py`."""
    names = in_dependency_order(raw)
    return _HEADER + "".join(_class_source(raw[name]) for name in names) + _registry_source(names)


def python_type(avro: Any) -> str:
    """Return the annotation for a field with this Avro type."""
    if isinstance(avro, list):
        return " | ".join(sorted((python_type(t) for t in avro), key=lambda t: t == "None"))
    if isinstance(avro, str):
        return _PRIMITIVES.get(avro, avro.removeprefix(f"{NAMESPACE}."))
    if avro["type"] == "array":
        return f"tuple[{python_type(avro['items'])}, ...]"
    return f"Mapping[str, {python_type(avro['values'])}]"


def references(avro: Any) -> set[str]:
    """Return the names of the records that an Avro type refers to."""
    if isinstance(avro, list):
        return set().union(*(references(branch) for branch in avro))
    if isinstance(avro, str):
        return {avro.removeprefix(f"{NAMESPACE}.")} if avro.startswith(f"{NAMESPACE}.") else set()
    return references(avro.get("items", avro.get("values", "null")))


def _class_source(schema: Schema) -> str:
    fields = "".join(_field_source(field) for field in schema["fields"])
    doc = _wrapped(schema["doc"])
    return (
        f"\n\n@dataclass(frozen=True, kw_only=True)\nclass {schema['name']}(Record):\n{doc}{fields}"
    )


def _wrapped(doc: str) -> str:
    line = f'    """{doc}"""'
    if len(line) <= 100:
        return f"{line}\n\n"
    cut = doc.rfind(" ", 0, 92)
    return f'    """{doc[:cut]}\n    {doc[cut + 1 :]}"""\n\n'


def _field_source(field: dict[str, Any]) -> str:
    annotation = python_type(field["type"])
    if "default" not in field:
        return f"    {field['name']}: {annotation}\n"
    default = field["default"]
    if default == {}:
        text = "field(default_factory=dict)"
    elif default == []:
        text = "()"
    else:
        text = json.dumps(default) if isinstance(default, str) else repr(default)
    return f"    {field['name']}: {annotation} = {text}\n"


def _registry_source(names: list[str]) -> str:
    rows = "".join(f'    "{name}": {name},\n' for name in names)
    return f"\n\nRECORDS: Mapping[str, type[Record]] = {{\n{rows}}}\n"


def in_dependency_order(raw: Mapping[str, Schema]) -> list[str]:
    """Return all records, each after those that it refers to."""
    ordered: list[str] = []

    def visit(name: str) -> None:
        if name in ordered:
            return
        for field in raw[name]["fields"]:
            for reference in sorted(references(field["type"])):
                visit(reference)
        ordered.append(name)

    for name in raw:
        visit(name)
    return ordered


def main() -> None:
    """Rewrite the generated files beside this module."""
    # `seamlessflow/schemas` is a link to the folder beside `pyproject.toml`.
    folder = Path(__file__).resolve().parent
    raw = raw_schemas()
    (folder / "records.py").write_text(records_source(raw))
    fingerprints = {}
    for name in raw:
        schema = self_contained(name, raw)
        fingerprints[name] = schema_fingerprint(schema)
        version = folder / "versions" / name / f"{fingerprints[name]}.avsc"
        if not version.exists():
            version.parent.mkdir(parents=True, exist_ok=True)
            version.write_text(json.dumps(schema, indent=1, ensure_ascii=False) + "\n")
    project = tomllib.loads((folder.parent / "pyproject.toml").read_text())["project"]
    manifest = folder / "manifests" / f"{project['version']}.json"
    manifest.write_text(json.dumps(fingerprints, indent=1) + "\n")


if __name__ == "__main__":
    main()
