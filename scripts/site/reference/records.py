"""Reference for the records on the log and their parts, from `schemas/avsc`."""

import json
from typing import Any

from scripts.site.reference.markdown import code, entry, plain
from seamlessflow.schemas.registry import raw_schemas
from seamlessflow.schemas.topics import TOPICS

_INTRODUCTION = """# Records

This page has each record of the log and its fields. Commands are imperative, events past tense.
A record is Avro in single-object encoding. [Topics](topics.md) says which topic has which.
"""
_NAMESPACE = "seamlessflow."


def page() -> str:
    """Return the whole page, records in alphabetical order."""
    schemas = raw_schemas()
    return "\n".join([_INTRODUCTION, *(_section(name, schemas[name]) for name in sorted(schemas))])


def link(name: str, page: str = "") -> str:
    """Return a link to a record on this page, from another page if that is named."""
    return f"[`{name}`]({page}#{name.lower()})"


def spelled(kind: Any) -> str:
    """Return an Avro type in words, with links to the records in it."""
    if isinstance(kind, list):
        return " or ".join(spelled(member) for member in kind)
    if isinstance(kind, dict):
        inner = spelled(kind.get("items", kind.get("values")))
        return f"{'list' if kind['type'] == 'array' else 'map'} of {inner}"
    if kind.startswith(_NAMESPACE):
        return link(kind.removeprefix(_NAMESPACE))
    return code(kind)


def _section(name: str, schema: Any) -> str:
    topics = [topic for topic in TOPICS.values() if name in {r.__name__ for r in topic.records}]
    where = ", ".join(f"[`{topic.name}`](topics.md#{topic.name})" for topic in topics)
    lines = [f"## {name}\n", plain(schema.get("doc", "")), f"\nOn {where}.\n" if topics else ""]
    return "\n".join([*lines, *map(_entry, schema["fields"])])


def _entry(field: Any) -> str:
    default = f"default {code(json.dumps(field['default']))}" if "default" in field else ""
    return entry(field["name"], plain(field.get("doc", "")), [spelled(field["type"]), default])
