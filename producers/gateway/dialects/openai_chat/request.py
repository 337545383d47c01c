"""Requests in the OpenAI chat completions dialect: HTTP body to `CanonicalRequest`. Pure.

Unsupported parameters that would change the answer are refused by name; other unknown parameters
are ignored. If the request has `allowed_tools`, the model is shown only these, as in the Responses
dialect.
"""

from collections.abc import Collection, Mapping
from typing import Any

from seamlessflow.producers.gateway.dialects.canonical import (
    CanonicalRequest,
    canonical_json,
    functions_json,
)
from seamlessflow.producers.gateway.dialects.openai_chat.messages import canonical_messages
from seamlessflow.producers.gateway.dialects.parameters import (
    ParameterCheck,
    flag,
    includes_usage,
    read_body,
    refuse,
    refuse_deep_nesting,
    text,
    unsupported,
    wants_token_ids,
    whole,
)
from seamlessflow.producers.gateway.dialects.sampling_parameters import (
    NOT_DONE,
    json_schema,
    sampling,
)
from seamlessflow.producers.gateway.errors import bad
from seamlessflow.schemas.records import Sampling

DIALECT = "openai.chat"
MOST_LOGPROBS = 20
_CHOICES = "tool_choice must be auto, none, required, a function or allowed_tools"


@refuse_deep_nesting
def parse(body: bytes, max_choices: int) -> CanonicalRequest:
    """Return the request in a body. Raises `ApiError` (400) that names the wrong parameter."""
    request = read_body(body)
    refuse(request, _REFUSED)
    functions = read_tools(request.get("tools"))
    names = [str(function["name"]) for function in functions]
    choice, shown = _tool_choice(request.get("tool_choice", "auto"), names)
    stream = flag("stream", request.get("stream", False))
    return CanonicalRequest(
        dialect=DIALECT,
        model=text("model", request.get("model")),
        messages=canonical_messages(request.get("messages")),
        tools=functions_json([function for function in functions if function["name"] in shown]),
        template_args=_template_args(request.get("chat_template_kwargs", {})),
        sampling=_sampling(request),
        tool_choice=choice,
        choices=whole(1, max_choices)("n", request.get("n", 1)),
        stream=stream,
        include_usage=includes_usage(request.get("stream_options", {})) and stream,
        wants_logprobs=flag("logprobs", request.get("logprobs", False)),
        wants_token_ids=wants_token_ids(request),
    )


def read_tools(tools: object) -> list[dict[str, object]]:
    """Return each tool's function. Raises `ApiError` that names the wrong member."""
    if tools is None:
        return []
    if not isinstance(tools, list):
        raise bad("tools", "tools must be a list")
    return [_tool(f"tools[{n}]", tool) for n, tool in enumerate(tools)]


def _sampling(request: Mapping[str, Any]) -> Sampling:
    more: dict[str, object] = {}
    most = whole(0, MOST_LOGPROBS)("top_logprobs", request.get("top_logprobs", 0))
    if most and request.get("logprobs") is not True:
        raise bad("top_logprobs", "top_logprobs needs logprobs to be true")
    if most:
        more["top_logprobs"] = most
    if "response_format" in request:
        more["json_schema"] = json_schema("response_format", request["response_format"])
    return sampling(request, **more)


def _template_args(value: object) -> bytes | None:
    name = "chat_template_kwargs"
    if not isinstance(value, dict):
        raise bad(name, f"{name} must be an object")
    asked = {member: wanted for member, wanted in value.items() if wanted is not None}
    for member, wanted in asked.items():
        if not isinstance(wanted, bool | int | str):
            where = f"{name}.{member}"
            raise bad(where, f"{where} must be true, false, a whole number or text")
    return canonical_json(asked, name) if asked else None


def _tool_choice(value: object, names: Collection[str]) -> tuple[str, Collection[str]]:
    """Return the choice, and the function names that the model is shown."""
    match value:
        case "auto" | "none":
            # Without tools there is no choice. One value for it gives equal calls equal hashes.
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


_REFUSED: Mapping[str, ParameterCheck] = {
    **NOT_DONE,
    "functions": unsupported([]),
    "function_call": unsupported("auto", "none"),
    "audio": unsupported(),
    "modalities": unsupported(["text"]),
    "moderation": unsupported(),
    "web_search_options": unsupported(),
    "echo": unsupported(False),
    "best_of": unsupported(1),
    "chat_template": unsupported(),
    "documents": unsupported([]),
    "add_generation_prompt": unsupported(True),
    "continue_final_message": unsupported(False),
}
