"""Requests in the OpenAI Responses dialect: HTTP body to `CanonicalRequest`. Pure.

Unsupported parameters that would change the answer are refused by name; other unknown parameters
are ignored. The answer repeats the protocol's parameters. If the request has `allowed_tools`, the
model is shown only these.

`store` stores nothing. A request in the same session can still continue a response by its id, and
name a response's items.
"""

from collections.abc import Collection, Mapping
from typing import Any

from seamlessflow.producers.gateway.dialects.canonical import (
    CanonicalRequest,
    canonical_json,
    functions_json,
    ordered_json,
)
from seamlessflow.producers.gateway.dialects.dialect import RESPONSE
from seamlessflow.producers.gateway.dialects.openai_responses.echoed import LOGPROBS, echoed
from seamlessflow.producers.gateway.dialects.openai_responses.input import (
    additional_tools,
    canonical_input,
)
from seamlessflow.producers.gateway.dialects.openai_responses.tools import (
    Offered,
    function_name,
    read_tools,
)
from seamlessflow.producers.gateway.dialects.parameters import (
    INT32,
    ParameterCheck,
    flag,
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
from seamlessflow.producers.gateway.errors import ApiError, bad
from seamlessflow.schemas.records import Sampling

DIALECT = "openai.responses"
MOST_LOGPROBS = 20


@refuse_deep_nesting
def parse(body: bytes, max_choices: int) -> CanonicalRequest:
    """Return the request in a body. Raises `ApiError` (400) that names the wrong parameter."""
    request = read_body(body)
    refuse(request, _REFUSED)
    tools = _tools(request)
    functions = read_tools(tools)
    choice, shown = _tool_choice(request.get("tool_choice", "auto"), functions)
    repeated = echoed(request)
    wants_logprobs = LOGPROBS in repeated.get("include", ())
    instructions = _instructions(request.get("instructions", ""))
    previous = _previous(request.get("previous_response_id"))
    return CanonicalRequest(
        dialect=DIALECT,
        model=text("model", request.get("model")),
        messages=instructions
        + canonical_input(request.get("input"), continues=previous is not None),
        tools=functions_json([functions[tool] for tool in functions if tool.function in shown]),
        template_args=None,
        sampling=_sampling(request, wants_logprobs),
        tool_choice=choice,
        choices=1,
        stream=flag("stream", request.get("stream", False)),
        include_usage=False,
        wants_logprobs=wants_logprobs,
        wants_token_ids=wants_token_ids(request),
        previous_turn=previous,
        own_messages=len(instructions),
        echoed=repeated
        | {"tools": tools, "offered": {function.function: function for function in functions}},
    )


def _tools(request: Mapping[str, Any]) -> list[Any]:
    tools = request.get("tools", [])
    if not isinstance(tools, list):
        raise bad("tools", "tools must be a list")
    tools = tools + additional_tools(request.get("input"))
    # Refuses tools that the answer could not repeat as JSON.
    ordered_json(tools, "tools")
    return tools


def _instructions(value: object) -> tuple[bytes, ...]:
    content = text("instructions", value)
    message = {"role": "system", "content": content}
    return (canonical_json(message, "instructions"),) if content else ()


def _previous(value: object) -> str | None:
    if value is None:
        return None
    name = text("previous_response_id", value)
    if not name.startswith(RESPONSE):
        raise ApiError(
            400,
            f"there is no response {name!r} to continue",
            code="previous_response_not_found",
            param="previous_response_id",
        )
    return name.removeprefix(RESPONSE)


def _sampling(request: Mapping[str, Any], wants_logprobs: bool) -> Sampling:
    more: dict[str, object] = {}
    if "max_output_tokens" in request:
        check = whole(1, INT32)
        more["max_tokens"] = check("max_output_tokens", request["max_output_tokens"])
    most = whole(0, MOST_LOGPROBS)("top_logprobs", request.get("top_logprobs", 0))
    if most and wants_logprobs:
        more["top_logprobs"] = most
    schema = _answer_format(request.get("text", {}))
    if schema is not None:
        more["json_schema"] = schema
    # `sampling` also reads the other dialects' token limits, which mean nothing in this one.
    return sampling(
        {name: request[name] for name in request if name not in _OF_OTHER_DIALECTS}, **more
    )


def _answer_format(value: object) -> str | None:
    if not isinstance(value, dict):
        raise bad("text", "text must be an object")
    match value.get("format"):
        case None:
            return None
        case {"type": "json_schema", "schema": dict(schema)}:
            wrapped = {"type": "json_schema", "json_schema": {"schema": schema}}
            return json_schema("text.format", wrapped)
        case {"type": "json_schema"}:
            raise bad("text.format.schema", "text.format.schema must be an object")
        case other:
            return json_schema("text.format", other)


def _tool_choice(value: object, functions: Collection[Offered]) -> tuple[str, Collection[str]]:
    """Return the choice, and the function names that the model is shown."""
    names = [tool.function for tool in functions]
    match value:
        case "auto" | "none":
            return (str(value) if names else "auto"), names
        case "required":
            wanted = "required"
        case {"type": "function" | "custom" | "local_shell"}:
            wanted = _named("tool_choice", value, functions)
        case {"type": "allowed_tools", "mode": "auto" | "required" as mode, "tools": list(tools)}:
            return _allowed(mode, tools, functions)
        case _:
            raise bad("tool_choice", "tool_choice must be auto, none, required or a tool offered")
    if not names:
        raise bad("tool_choice", "tool_choice needs tools")
    return wanted, names


def _allowed(
    mode: str, tools: list[Any], functions: Collection[Offered]
) -> tuple[str, Collection[str]]:
    place = "tool_choice.tools"
    names = [_named(f"{place}[{n}]", tool, functions) for n, tool in enumerate(tools)]
    if not names:
        raise bad(place, f"{place} must name at least one tool")
    return mode, names


def _named(place: str, tool: object, functions: Collection[Offered]) -> str:
    """Return the function that `tool` names. Without a namespace, it may be in any namespace."""
    if isinstance(tool, dict):
        name = str(tool.get("name", tool.get("type")))
        wanted = function_name(name, tool.get("namespace"))
        for function in functions:
            if wanted in (function.function, function.name):
                return function.function
    raise bad(place, f"{place} names a tool that is not in tools")


_OF_OTHER_DIALECTS = ("max_tokens", "max_completion_tokens")
_REFUSED: Mapping[str, ParameterCheck] = {
    **NOT_DONE,
    "background": unsupported(False),
    "conversation": unsupported(),
    "prompt": unsupported(),
    "moderation": unsupported(),
    "context_management": unsupported([]),
    "chat_template_kwargs": unsupported({}),
    "n": unsupported(1),
}
