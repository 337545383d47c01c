"""A tryout's scripted policy: what it says to each call from an environment. Pure.

For the first few calls in a session, it calls the tools that a call offers, in turn. Then it says
texts. Arguments are the smallest values that a tool's schema allows.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from seamlessflow.producers.gateway.dialects.canonical import CanonicalRequest
from seamlessflow.schemas.json_text import read_json

TEXTS = ("I am not sure.\n<answer>1</answer>",)
_LEAST_CALLS = 2
_MOST_CALLS = 4
_DEEPEST = 8
_CHOICES = ("const", "default", "enum", "examples")
_FIRST_OF = ("anyOf", "oneOf", "allOf")
_SMALLEST: Mapping[str, object] = {
    "string": "a",
    "integer": 1,
    "number": 1.0,
    "boolean": True,
    "null": None,
}
JsonObject = Mapping[str, Any]


class ScriptedPolicy:
    """One session's answers, in call order."""

    def __init__(self, texts: Sequence[str] = TEXTS) -> None:
        """`texts`: said in turn, the last one again and again."""
        self._texts = texts
        self._said = 0
        self._called = 0

    def answer(self, request: CanonicalRequest) -> JsonObject:
        """Return the assistant's message, in OpenAI's chat form."""
        tools = offered_tools(request)
        if tools and (tool := self._tool(tools, request.tool_choice)) is not None:
            self._called += 1
            return _call(tool, self._called)
        if request.sampling.json_schema is not None:
            text = json.dumps(example(read_json(request.sampling.json_schema.encode())))
        else:
            text = self._texts[min(self._said, len(self._texts) - 1)]
            self._said += 1
        return {"role": "assistant", "content": text}

    def _tool(self, tools: Sequence[JsonObject], choice: str) -> JsonObject | None:
        """Return the tool to call, or None to say a text."""
        named = {str(tool["name"]): tool for tool in tools}
        if choice in named:
            return named[choice]
        calls = min(max(_LEAST_CALLS, len(tools)), _MOST_CALLS)
        if choice == "none" or (choice == "auto" and self._called >= calls):
            return None
        return tools[self._called % len(tools)]


def offered_tools(request: CanonicalRequest) -> Sequence[JsonObject]:
    """Return the functions that a call offers."""
    return [tool["function"] for tool in read_json(request.tools or b"[]")]


def example(schema: Any, root: Any = None, depth: int = 0) -> Any:
    """Return a small value that a JSON schema allows, if the schema uses only usual keywords."""
    root = schema if root is None else root
    if not isinstance(schema, Mapping) or depth > _DEEPEST:
        return "a"
    if (place := schema.get("$ref")) is not None:
        return example(_referred(root, str(place)), root, depth + 1)
    for word in _CHOICES:
        if word in schema:
            value = schema[word]
            return value[0] if word in ("enum", "examples") and value else value
    for word in _FIRST_OF:
        if schema.get(word):
            return example(schema[word][0], root, depth + 1)
    return _of_type(schema, root, depth)


def _of_type(schema: Mapping[str, Any], root: Any, depth: int) -> Any:
    kind = schema.get("type")
    if isinstance(kind, list):
        kind = next((name for name in kind if name != "null"), "null")
    if kind == "object" or "properties" in schema:
        members = schema.get("properties") or {}
        required = schema.get("required") or ()
        return {
            name: example(members.get(name, {}), root, depth + 1)
            for name in required
            if isinstance(name, str)
        }
    if kind == "array":
        least = int(schema.get("minItems") or 0)
        return [example(schema.get("items") or {}, root, depth + 1)] * min(least, _MOST_CALLS)
    smallest = schema.get("minimum")
    if kind in ("integer", "number") and isinstance(smallest, int | float):
        return smallest
    return _SMALLEST.get(str(kind), "a")


def _referred(root: Any, place: str) -> Any:
    """Return the part of a schema that a reference within it names; empty if there is none."""
    part = root
    for name in place.removeprefix("#").strip("/").split("/"):
        part = part.get(name, {}) if isinstance(part, Mapping) else {}
    return part


def _call(tool: JsonObject, number: int) -> JsonObject:
    arguments = json.dumps(example(tool.get("parameters") or {"type": "object"}))
    function = {"name": tool["name"], "arguments": arguments}
    call = {"id": f"call_{number}", "type": "function", "function": function}
    return {"role": "assistant", "content": "", "tool_calls": [call]}
