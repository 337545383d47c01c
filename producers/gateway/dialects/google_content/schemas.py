"""Google's `Schema` objects (a part of OpenAPI 3.0) as JSON Schema. Pure.

Types lose their capitals, `nullable` becomes a further type, `propertyOrdering` the order of the
properties. Members that only JSON Schema has stay as they are.
"""

from collections.abc import Mapping
from typing import Any

from seamlessflow.producers.gateway.dialects.google_content.members import at, camel, listed
from seamlessflow.producers.gateway.errors import bad

_COUNTS = ("minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties")
_RENAMED = (*_COUNTS, "anyOf", "propertyOrdering", "additionalProperties")
_NO_TYPE = "TYPE_UNSPECIFIED"


def json_schema(place: str, schema: object) -> dict[str, Any]:
    """Return a schema as JSON Schema, its members in their order. Raises `ApiError`."""
    if not isinstance(schema, dict):
        raise bad(place, f"{place} must be an object")
    fields = {_known(name): value for name, value in schema.items() if value is not None}
    read = {name: _member(at(place, name), name, value) for name, value in fields.items()}
    if read.get("type") == _NO_TYPE.lower():
        del read["type"]
    order = read.pop("propertyOrdering", None)
    if order is not None and "properties" in read:
        read["properties"] = _ordered(order, read["properties"])
    return _with_null(read) if read.pop("nullable", False) is True else read


def _known(name: str) -> str:
    return camel_name if (camel_name := camel(name)) in _RENAMED else name


def _member(place: str, name: str, value: Any) -> Any:
    if name == "type":
        return value.lower() if isinstance(value, str) else value
    if name in _COUNTS and isinstance(value, str) and value.isdecimal() and len(value) < 10:
        return int(value)  # A 64-bit number is text in the vendor's JSON.
    if name == "items":
        return json_schema(place, value)
    if name == "anyOf":
        return [json_schema(f"{place}[{n}]", item) for n, item in enumerate(listed(place, value))]
    if name == "properties":
        if not isinstance(value, dict):
            raise bad(place, f"{place} must be an object")
        return {inner: json_schema(at(place, inner), item) for inner, item in value.items()}
    if name == "propertyOrdering":
        return listed(place, value)
    return value


def _ordered(order: list[Any], properties: Mapping[str, Any]) -> dict[str, Any]:
    first = [name for name in order if isinstance(name, str) and name in properties]
    return {name: properties[name] for name in [*first, *properties]}


def _with_null(schema: dict[str, Any]) -> dict[str, Any]:
    if "anyOf" in schema:
        return {**schema, "anyOf": [*schema["anyOf"], {"type": "null"}]}
    wider = dict(schema)
    if isinstance(wider.get("type"), str):
        wider["type"] = [wider["type"], "null"]
    if isinstance(wider.get("enum"), list):
        wider["enum"] = [*wider["enum"], None]
    return wider
