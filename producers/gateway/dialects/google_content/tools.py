"""A Google request's functions in canonical form, and the choice among them. Pure.

Parameters and answer schemas are Google `Schema` objects (a part of OpenAPI 3.0). They become JSON
Schema. Types become lower case. `nullable` becomes a further type, and `propertyOrdering` decides
the order of the properties. Members that only JSON Schema has stay as they are.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from seamlessflow.producers.gateway.dialects.google_content.members import (
    at,
    camel,
    listed,
    members,
)
from seamlessflow.producers.gateway.dialects.parameters import unsupported
from seamlessflow.producers.gateway.errors import bad

Function = Mapping[str, object]
_MODES = ("AUTO", "ANY", "NONE", "VALIDATED")
_NAMING = ("ANY", "VALIDATED")
"""Modes that may name the functions they allow."""
_STREAMED = "streamFunctionCallArguments"
_COUNTS = ("minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties")
_RENAMED = (*_COUNTS, "anyOf", "propertyOrdering", "additionalProperties")
_NO_TYPE = "TYPE_UNSPECIFIED"


def read_functions(tools: object) -> list[Function]:
    """Return all tools' functions.

    Raises `ApiError` for tools that only Google's own models know.
    """
    functions: list[Function] = []
    for n, tool in enumerate(listed("tools", tools)):
        place = f"tools[{n}]"
        for name, value in members(place, tool).items():
            where = at(place, name)
            if name != "functionDeclarations":
                unsupported()(where, value)
            functions += [
                _function(f"{where}[{k}]", declaration)
                for k, declaration in enumerate(listed(where, value))
            ]
    names = {function["name"] for function in functions}
    if len(names) < len(functions):
        raise bad("tools", "tools declare a function twice: names must be unique")
    return functions


def function_choice(
    config: object, functions: Sequence[Function]
) -> tuple[str, Sequence[Function]]:
    """Return the choice (auto, none, required or a name), and the functions the model is shown.

    If names are allowed, functions without an allowed name are left out, so that the model cannot
    call them. But in mode ANY, a single allowed name becomes the choice, and all functions are
    shown. In mode VALIDATED the model chooses between text and calls, as in AUTO.
    """
    place = "toolConfig.functionCallingConfig"
    calling = members(place, members("toolConfig", config).get("functionCallingConfig", {}))
    unsupported(False)(at(place, _STREAMED), calling.get(_STREAMED, False))
    mode = _mode(at(place, "mode"), calling.get("mode", "AUTO"))
    where = at(place, "allowedFunctionNames")
    allowed = listed(where, calling.get("allowedFunctionNames", []))
    if allowed and mode not in _NAMING:
        raise bad(where, f"{where} needs the mode {' or '.join(_NAMING)}")
    if mode == "NONE":
        return ("none" if functions else "auto"), functions
    if mode == "ANY" and not functions:
        raise bad(place, f"{place}.mode is ANY, which needs functions in tools")
    names = [function["name"] for function in functions]
    for name in allowed:
        if name not in names:
            raise bad(where, f"{where} names {name!r}, which is not in tools")
    if mode == "ANY" and len(set(allowed)) == 1:
        return str(allowed[0]), functions
    shown = [function for function in functions if not allowed or function["name"] in allowed]
    return ("required" if mode == "ANY" else "auto"), shown


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


def _mode(place: str, value: object) -> str:
    mode = value.upper() if isinstance(value, str) else value
    if mode == "MODE_UNSPECIFIED":
        return "AUTO"
    if mode not in _MODES:
        raise bad(place, f"{place} must be one of {', '.join(_MODES)}, not {str(value)[:100]!r}")
    return str(mode)


def _function(place: str, declaration: object) -> Function:
    fields = members(place, declaration)
    name = fields.get("name")
    if not isinstance(name, str) or not name:
        raise bad(at(place, "name"), f"{place}.name must be text and not empty")
    if "behavior" in fields:
        unsupported("BLOCKING", "UNSPECIFIED")(at(place, "behavior"), fields["behavior"])
    return {"name": name, **_description(place, fields), **_parameters(place, fields)}


def _description(place: str, fields: Mapping[str, Any]) -> dict[str, object]:
    description = fields.get("description")
    if description is None:
        return {}
    if not isinstance(description, str):
        raise bad(at(place, "description"), f"{place}.description must be text")
    return {"description": description}


def _parameters(place: str, fields: Mapping[str, Any]) -> dict[str, object]:
    where = at(place, "parametersJsonSchema")
    if "parameters" in fields:
        if "parametersJsonSchema" in fields:
            raise bad(where, f"{where} and {place}.parameters exclude each other")
        return {"parameters": json_schema(at(place, "parameters"), fields["parameters"])}
    schema = fields.get("parametersJsonSchema")
    if schema is None:
        return {}
    if not isinstance(schema, dict):
        raise bad(where, f"{where} must be an object")
    return {"parameters": schema}


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
