"""Functions of a Google request in canonical form, and the choice among them. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from seamlessflow.producers.gateway.dialects.google_content.members import at, listed, members
from seamlessflow.producers.gateway.dialects.google_content.schemas import json_schema
from seamlessflow.producers.gateway.dialects.parameters import unsupported
from seamlessflow.producers.gateway.errors import bad

Function = Mapping[str, object]
_MODES = ("AUTO", "ANY", "NONE", "VALIDATED")
_NAMING = ("ANY", "VALIDATED")
"""Modes that may name the functions they allow."""
_STREAMED = "streamFunctionCallArguments"


def read_functions(tools: object) -> list[Function]:
    """Return the functions of all tools.

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

    Several allowed names leave out the other functions, as the model then cannot call them. In the
    mode VALIDATED the model chooses between text and calls, as in AUTO.
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
