"""Tools of an Anthropic messages request in canonical form. Pure."""

from collections.abc import Mapping
from typing import Any

from seamlessflow.producers.gateway.dialects.canonical import functions_json
from seamlessflow.producers.gateway.dialects.parameters import flag
from seamlessflow.producers.gateway.errors import bad


def canonical_tools(tools: object) -> tuple[bytes | None, frozenset[str]]:
    """Return the tools as one JSON array with schemas as they were sent, and their names.

    The array is None if there are no tools. Raises `ApiError` for tools that Anthropic defines, as
    only its own models know them.
    """
    if tools is None or tools == []:
        return None, frozenset()
    if not isinstance(tools, list):
        raise bad("tools", "tools must be a list")
    read = [_tool(f"tools.{n}", tool) for n, tool in enumerate(tools)]
    names = frozenset(str(tool["name"]) for tool in read)
    if len(names) < len(read):
        raise bad("tools", "tools: tool names must be unique")
    return functions_json(read), names


def canonical_choice(choice: object, names: frozenset[str]) -> str:
    """Return what `tool_choice` asks for: auto, none, required or a name. Raises `ApiError`."""
    match choice:
        case {"type": "auto" | "none" as kind}:
            return str(kind) if names else "auto"
        case {"type": "any"}:
            wanted = "required"
        case {"type": "tool", "name": str(wanted)}:
            if wanted not in names:
                raise bad("tool_choice", f"tool_choice names {wanted!r}, which is not in tools")
        case _:
            raise bad(
                "tool_choice", "tool_choice must be of type auto, any, tool (with name), none"
            )
    if not names:
        raise bad("tool_choice", "tool_choice needs tools")
    return wanted


def one_tool_call(choice: object) -> bool:
    """Return whether `tool_choice` asks for at most one call. Raises `ApiError`."""
    wanted = choice.get("disable_parallel_tool_use") if isinstance(choice, dict) else None
    return wanted is not None and flag("tool_choice.disable_parallel_tool_use", wanted)


def _tool(place: str, tool: object) -> dict[str, object]:
    if not isinstance(tool, dict):
        raise bad(place, f"{place} must be an object")
    kind = tool.get("type")
    if kind not in (None, "custom"):
        raise bad(place, f"{place}: this model knows no tool of type {kind!r}, only your own")
    name = tool.get("name")
    if not isinstance(name, str) or not name:
        raise bad(f"{place}.name", f"{place}.name must be text and not empty")
    return {"name": name, **_described(place, tool)}


def _described(place: str, tool: Mapping[str, Any]) -> dict[str, object]:
    description, schema = tool.get("description"), tool.get("input_schema")
    if not isinstance(schema, dict):
        raise bad(f"{place}.input_schema", f"{place}.input_schema must be an object")
    if description is None:
        return {"parameters": schema}
    if not isinstance(description, str):
        raise bad(f"{place}.description", f"{place}.description must be text")
    return {"description": description, "parameters": schema}
