"""Tools of an OpenAI chat request in canonical form, and the choice among them. Pure.

The model is shown only the `allowed_tools`, as in the Responses dialect.
"""

from collections.abc import Collection, Mapping
from typing import Any

from seamlessflow.producers.gateway.errors import bad

_CHOICES = "tool_choice must be auto, none, required, a function or allowed_tools"


def read_tools(tools: object) -> list[dict[str, object]]:
    """Return the function of each tool. Raises `ApiError` that names the wrong member."""
    if tools is None:
        return []
    if not isinstance(tools, list):
        raise bad("tools", "tools must be a list")
    return [_tool(f"tools[{n}]", tool) for n, tool in enumerate(tools)]


def tool_choice(value: object, names: Collection[str]) -> tuple[str, Collection[str]]:
    """Return the choice, and the names of the functions that the model is shown."""
    match value:
        case "auto" | "none":
            # Without tools there is no choice; one value gives equal calls equal hashes.
            return (str(value) if names else "auto"), names
        case "required":
            wanted = "required"
        case {"type": "function"}:
            wanted = _named("tool_choice", value, names)
        case {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": list(tools)}}:
            return _allowed(mode, tools, names)
        case _:
            raise bad("tool_choice", _CHOICES)
    if not names:
        raise bad("tool_choice", "tool_choice needs tools")
    return wanted, names


def _allowed(mode: object, tools: list[Any], names: Collection[str]) -> tuple[str, list[str]]:
    place = "tool_choice.allowed_tools"
    if mode not in ("auto", "required"):
        raise bad(f"{place}.mode", f"{place}.mode must be auto or required")
    if not tools:
        raise bad(f"{place}.tools", f"{place}.tools must name at least one tool")
    shown = [_named(f"{place}.tools[{n}]", tool, names) for n, tool in enumerate(tools)]
    return str(mode), shown


def _named(place: str, tool: object, names: Collection[str]) -> str:
    match tool:
        case {"type": "function", "function": {"name": str(name)}}:
            if name not in names:
                raise bad(place, f"{place} names {name!r}, which is not in tools")
            return name
    raise bad(place, _CHOICES if place == "tool_choice" else f"{place} must name a function")


def _tool(place: str, tool: object) -> dict[str, object]:
    match tool:
        case {"type": "function", "function": {"name": str(name)} as function} if name:
            return _function(place, name, function)
        case {"type": str(kind)} if kind != "function":
            raise bad(f"{place}.type", f"{place} is of type {kind!r}: only functions are supported")
    raise bad(place, f"{place} must be of type function and have a function with a name")


def _function(place: str, name: str, function: Mapping[str, object]) -> dict[str, object]:
    read: dict[str, object] = {"name": name}
    for member, kind in (("description", str), ("parameters", dict)):
        value = function.get(member)
        if value is None:
            continue
        if not isinstance(value, kind):
            where = f"{place}.function.{member}"
            raise bad(where, f"{where} must be {'text' if kind is str else 'an object'}")
        read[member] = value
    return read
