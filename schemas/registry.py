"""Avro schemas, this release's and all earlier ones', from `avsc/` and `versions/`.

A schema's fingerprint is the CRC-64-AVRO of its parsing canonical form. Its bytes have the order
that single-object encoding uses.
"""

import json
from collections.abc import Mapping
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

from fastavro.schema import fingerprint, parse_schema, to_parsing_canonical_form

NAMESPACE = "seamlessflow"
_ROOT = files("seamlessflow.schemas")

Schema = dict[str, Any]
SchemaVersions = Mapping[str, Mapping[str, Schema]]
"""Schemas by record name, then by the schema's fingerprint in hex."""


def raw_schemas() -> dict[str, Schema]:
    """Return this release's `.avsc` schemas by record name, with references left as names."""
    return {
        path.name.removesuffix(".avsc"): json.loads(path.read_text())
        for path in _sorted(_ROOT / "avsc")
    }


def self_contained(name: str, raw: Mapping[str, Schema]) -> Schema:
    """Return the schema of `name` with every referenced record defined at its first use."""
    resolved = _inline(raw[name], raw, set())
    assert isinstance(resolved, dict)  # nosec B101 # for the type checker
    return resolved


def schema_versions() -> SchemaVersions:
    """Return every released version of each schema."""
    folder = _ROOT / "versions"
    return {
        record.name: {
            version.name.removesuffix(".avsc"): json.loads(version.read_text())
            for version in _sorted(record)
        }
        for record in _sorted(folder)
    }


def schema_fingerprint(schema: Schema) -> str:
    """Return in hex the eight bytes that follow `C3 01` in an encoded record."""
    return str(fingerprint(to_parsing_canonical_form(schema), "CRC-64-AVRO"))


def parsed(schema: Schema) -> Any:
    """Return the schema in the form that fastavro uses."""
    return parse_schema(schema, named_schemas={})


def _inline(node: Any, raw: Mapping[str, Schema], seen: set[str]) -> Any:
    if isinstance(node, list):
        return [_inline(branch, raw, seen) for branch in node]
    if isinstance(node, str):
        name = node.removeprefix(f"{NAMESPACE}.")
        if name == node or name in seen:
            return node
        return _inline(raw[name], raw, seen)
    copied = dict(node)
    if copied["type"] == "record":
        seen.add(copied["name"])
        copied["fields"] = [
            {**field, "type": _inline(field["type"], raw, seen)} for field in copied["fields"]
        ]
    for key in ("items", "values"):
        if key in copied:
            copied[key] = _inline(copied[key], raw, seen)
    return copied


def _sorted(folder: Traversable) -> list[Traversable]:
    return sorted(folder.iterdir(), key=lambda path: path.name)
