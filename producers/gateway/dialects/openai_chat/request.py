"""Requests of the OpenAI chat completions dialect: HTTP body to `CanonicalRequest`. Pure.

Unsupported parameters that would change the answer are refused by name; other unknown parameters
are ignored.
"""

from collections.abc import Mapping
from typing import Any

from seamlessflow.producers.gateway.dialects.canonical import (
    CanonicalRequest,
    canonical_json,
    functions_json,
)
from seamlessflow.producers.gateway.dialects.openai_chat.messages import canonical_messages
from seamlessflow.producers.gateway.dialects.openai_chat.tools import read_tools, tool_choice
from seamlessflow.producers.gateway.dialects.parameters import (
    Check,
    flag,
    includes_usage,
    read_body,
    refuse,
    refuse_deep_nesting,
    text,
    unsupported,
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


@refuse_deep_nesting
def parse(body: bytes, max_choices: int) -> CanonicalRequest:
    """Return the request in a body. Raises `ApiError` (400) that names the wrong parameter."""
    request = read_body(body)
    refuse(request, _REFUSED)
    functions = read_tools(request.get("tools"))
    names = [str(function["name"]) for function in functions]
    choice, shown = tool_choice(request.get("tool_choice", "auto"), names)
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
    )


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


_REFUSED: Mapping[str, Check] = {
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
