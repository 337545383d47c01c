"""The OpenAI chat completions dialect, from the agent: HTTP body to `CanonicalRequest`. Pure.

Parameters that would change the answer and are not supported are refused by name; others that are
not known are ignored.
"""

from collections.abc import Mapping
from typing import Any

from producers.gateway.canonical import CanonicalRequest, canonical_json
from producers.gateway.chat_messages import canonical_messages, canonical_tools
from producers.gateway.errors import bad
from producers.gateway.parameters import Check, flag, given, number, stops, text, unsupported, whole
from schemas.records import Sampling

DIALECT = "openai.chat"


def parse(body: bytes, max_choices: int) -> CanonicalRequest:
    """Reads a request body. Raises `ApiError` (400) that names the wrong parameter."""
    request = given(body)
    for name in _REFUSED.keys() & request.keys():
        _REFUSED[name](name, request[name])
    tools, tool_names = canonical_tools(request.get("tools"))
    options = request.get("stream_options") or {}
    stream = flag("stream", request.get("stream", False))
    return CanonicalRequest(
        dialect=DIALECT,
        model=text("model", request.get("model")),
        messages=canonical_messages(request.get("messages")),
        tools=tools,
        template_args=_template_args(request.get("chat_template_kwargs")),
        sampling=_sampling(request),
        tool_choice=_tool_choice(request.get("tool_choice", "auto"), tool_names),
        choices=int(whole(1, max_choices)("n", request.get("n", 1))),
        stream=stream,
        include_usage=stream and isinstance(options, dict) and bool(options.get("include_usage")),
        wants_logprobs=flag("logprobs", request.get("logprobs", False)),
    )


def _sampling(request: Mapping[str, Any]) -> Sampling:
    asked: dict[str, Any] = {}
    for name in request.keys() & _SAMPLING.keys():
        field, check = _SAMPLING[name]
        if name != "max_tokens" or "max_completion_tokens" not in request:
            asked[field] = check(name, request[name])
    return Sampling(**asked) if asked else _NOTHING_ASKED


def _template_args(value: object) -> bytes | None:
    if value is None:
        return None
    if not isinstance(value, dict):
        raise bad("chat_template_kwargs", "chat_template_kwargs must be an object")
    return canonical_json(value, "chat_template_kwargs") if value else None


def _tool_choice(value: object, names: frozenset[str]) -> str:
    match value:
        case "auto" | "none":
            return str(value) if names else "auto"
        case "required":
            wanted = "required"
        case {"type": "function", "function": {"name": str(wanted)}}:
            if wanted not in names:
                raise bad("tool_choice", f"tool_choice names {wanted!r}, which is not in tools")
        case _:
            raise bad("tool_choice", "tool_choice must be auto, none, required or a function")
    if not names:
        raise bad("tool_choice", "tool_choice needs tools")
    return wanted


def _biases(name: str, value: Any) -> dict[str, float]:
    if not isinstance(value, dict) or not all(token.isdecimal() for token in value):
        raise bad(name, f"{name} must be an object whose names are token ids")
    return {token: float(_bias(f"{name}.{token}", bias)) for token, bias in value.items()}  # type: ignore[arg-type]


def _top_k(name: str, value: Any) -> int:
    # Some engines write "all" as -1, the record as 0.
    return max(0, whole(-1, _INT32)(name, value))


_INT32, _INT64 = 2**31 - 1, 2**63 - 1
_NOTHING_ASKED = Sampling()
_bias = number(-100, 100)
_SAMPLING: Mapping[str, tuple[str, Check]] = {
    "max_tokens": ("max_tokens", whole(1, _INT32)),
    "max_completion_tokens": ("max_tokens", whole(1, _INT32)),
    "temperature": ("temperature", number(0, 2)),
    "top_p": ("top_p", number(0, 1)),
    "top_k": ("top_k", _top_k),
    "min_p": ("min_p", number(0, 1)),
    "presence_penalty": ("presence_penalty", number(-2, 2)),
    "frequency_penalty": ("frequency_penalty", number(-2, 2)),
    "repetition_penalty": ("repetition_penalty", number(0, 10)),
    "logit_bias": ("logit_bias", _biases),
    "min_tokens": ("min_tokens", whole(0, _INT32)),
    "seed": ("seed", whole(-_INT64, _INT64)),
    "stop": ("stop", stops),
}
_REFUSED: Mapping[str, Check] = {
    "functions": unsupported([]),
    "function_call": unsupported("auto", "none"),
    "audio": unsupported(),
    "modalities": unsupported(["text"]),
    "response_format": unsupported({"type": "text"}),
    "top_logprobs": unsupported(0),
    "web_search_options": unsupported(),
}
