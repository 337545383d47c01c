"""Requests in the Anthropic messages dialect: HTTP body to `CanonicalRequest`. Pure.

Unsupported members that would change the answer are refused by name. Other unknown members are
ignored, since the vendor's clients keep adding new ones. A request that ends with the beginning of
an answer is refused, as the vendor's later models refuse it. Tools that Anthropic defines are
refused, as only its own models know them.
"""

from collections.abc import Mapping
from typing import Any

from seamlessflow.producers.gateway.dialects.anthropic_messages.history import canonical_history
from seamlessflow.producers.gateway.dialects.canonical import (
    CanonicalRequest,
    Prompt,
    functions_json,
    ordered_json,
)
from seamlessflow.producers.gateway.dialects.parameters import (
    INT32,
    ParameterCheck,
    flag,
    number,
    read_body,
    refuse,
    refuse_deep_nesting,
    stop_list,
    text,
    unsupported,
    whole,
)
from seamlessflow.producers.gateway.errors import bad
from seamlessflow.schemas.records import Sampling

DIALECT = "anthropic.messages"
_NO_PREFILL = (
    "This model does not support assistant message prefill. "
    "The conversation must end with a user message."
)


@refuse_deep_nesting
def parse(body: bytes, max_choices: int) -> CanonicalRequest:
    """Return the request in a body. Raises `ApiError` (400) that names the wrong parameter."""
    request = read_body(body)
    refuse(request, _REFUSED)
    history = canonical_history(request.get("system"), _required(request, "messages"))
    if history.ends_with_assistant:
        raise bad("messages", _NO_PREFILL)
    tools, tool_names = _tools(request.get("tools"))
    return CanonicalRequest(
        dialect=DIALECT,
        model=text("model", _required(request, "model")),
        messages=history.canonical(),
        tools=tools,
        template_args=None,
        sampling=_sampling(request),
        tool_choice=_tool_choice(request.get("tool_choice", {"type": "auto"}), tool_names),
        choices=1,
        stream=flag("stream", request.get("stream", False)),
        include_usage=True,
        wants_logprobs=False,
        echoed={"thinking": _thinking(request.get("thinking", {}))},
    )


@refuse_deep_nesting
def prompt(body: bytes) -> Prompt:
    """Return the prompt in a request that counts tokens. Raises `ApiError` (400)."""
    request = read_body(body)
    refuse(request, _REFUSED)
    text("model", _required(request, "model"))
    history = canonical_history(request.get("system"), _required(request, "messages"))
    tools, _ = _tools(request.get("tools"))
    return Prompt(history.canonical(), tools)


def _required(request: Mapping[str, Any], name: str) -> Any:
    if name not in request:
        raise bad(name, f"{name}: Field required")
    return request[name]


def _thinking(config: object) -> str:
    """Return how the agent gets thinking: `shown`, `omitted` (blocks without text) or `hidden`."""
    match config:
        case {"type": "disabled"}:
            return "hidden"
        case {"display": "omitted"}:
            return "omitted"
        case dict():
            return "shown"
    raise bad("thinking", "thinking must be an object")


def _sampling(request: Mapping[str, Any]) -> Sampling:
    most = whole(1, INT32)("max_tokens", _required(request, "max_tokens"))
    asked: dict[str, Any] = {"max_tokens": most}
    for name in request.keys() & _SAMPLING.keys():
        field, check = _SAMPLING[name]
        asked[field] = check(name, request[name])
    if _one_tool_call(request.get("tool_choice")):
        asked["one_tool_call"] = True
    if schema := _schema(request):
        asked["json_schema"] = schema
    return Sampling(**asked)


def _schema(request: Mapping[str, Any]) -> str | None:
    config = request.get("output_config", {})
    if not isinstance(config, dict):
        raise bad("output_config", "output_config must be an object")
    # `output_format` is the older name.
    name = "output_format" if "output_format" in request else "output_config.format"
    match request.get("output_format", config.get("format")):
        case None:
            return None
        case {"type": "json_schema", "schema": dict(schema)}:
            return ordered_json(schema, name).decode()
    raise bad(name, f"{name} must be of type json_schema and have a schema")


def _tools(tools: object) -> tuple[bytes | None, frozenset[str]]:
    """Return the tools as one JSON array, and their names. The schemas stay as they were sent.

    The array is None if there are no tools. Raises `ApiError`.
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


def _tool_choice(choice: object, names: frozenset[str]) -> str:
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


def _one_tool_call(choice: object) -> bool:
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
    description = tool.get("description")
    schema = tool.get("input_schema")
    if not isinstance(schema, dict):
        raise bad(f"{place}.input_schema", f"{place}.input_schema must be an object")
    if description is None:
        return {"parameters": schema}
    if not isinstance(description, str):
        raise bad(f"{place}.description", f"{place}.description must be text")
    return {"description": description, "parameters": schema}


_SAMPLING: Mapping[str, tuple[str, ParameterCheck]] = {
    "temperature": ("temperature", number(0, 1)),
    "top_p": ("top_p", number(0, 1)),
    "top_k": ("top_k", whole(0, INT32)),
    "stop_sequences": ("stop", stop_list),
}
_REFUSED: Mapping[str, ParameterCheck] = {
    "mcp_servers": unsupported([]),
    "container": unsupported(),
    "thread": unsupported(),
    "compaction": unsupported(),
}
