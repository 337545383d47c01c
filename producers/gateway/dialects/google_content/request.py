"""Requests of Google's `generateContent`: HTTP body and path to `CanonicalRequest`. Pure.

The path names the model and the answer's form. Unknown members of `generationConfig` are refused by
name, as at the vendor, since nearly all change the answer. In other objects, unsupported members
that would change the answer are refused, and unknown members are ignored.
"""

from collections.abc import Callable, Mapping
from typing import Any, Literal

from seamlessflow.producers.gateway.dialects.canonical import (
    CanonicalRequest,
    Prompt,
    functions_json,
    ordered_json,
)
from seamlessflow.producers.gateway.dialects.google_content.history import (
    GoogleHistory,
    canonical_history,
)
from seamlessflow.producers.gateway.dialects.google_content.members import members
from seamlessflow.producers.gateway.dialects.google_content.tools import (
    function_choice,
    json_schema,
    read_functions,
)
from seamlessflow.producers.gateway.dialects.parameters import (
    INT32,
    INT64,
    ParameterCheck,
    flag,
    number,
    read_body,
    refuse,
    refuse_deep_nesting,
    stop_list,
    unsupported,
    whole,
)
from seamlessflow.producers.gateway.errors import bad
from seamlessflow.schemas.records import Sampling

DIALECT = "google.content"
AnswerForm = Literal["whole", "events", "array"]
"""Answer forms: one object, server-sent events, or a JSON array that grows."""

MOST_LOGPROBS = 20
_CONFIG = "generationConfig"
_ANY_JSON = "{}"
_NO_PREFILL = "contents must end with a user's text or a function's response, not with the model's"


@refuse_deep_nesting
def parse(body: bytes, max_choices: int, model: str, form: AnswerForm) -> CanonicalRequest:
    """Return the request in a body. Raises `ApiError` (400) that names the wrong member."""
    request = members("", read_body(body))
    refuse(request, _REFUSED)
    if not model:
        raise bad("model", "the path names no model: it must be models/MODEL:METHOD")
    functions = read_functions(request.get("tools", []))
    choice, shown = function_choice(request.get("toolConfig", {}), functions)
    config = members(_CONFIG, request.get(_CONFIG, {}))
    choices = _whole(1, max_choices)(f"{_CONFIG}.candidateCount", config.get("candidateCount", 1))
    return CanonicalRequest(
        dialect=DIALECT,
        model=model,
        messages=_history(request).canonical(),
        tools=functions_json(shown),
        template_args=None,
        sampling=_sampling(config),
        tool_choice=choice,
        choices=choices,
        stream=form != "whole",
        include_usage=True,
        wants_logprobs=_flag(config, "responseLogprobs"),
        echoed={"form": form, "thoughts": _shows_thoughts(config)},
    )


@refuse_deep_nesting
def prompt(body: bytes) -> Prompt:
    """Return the prompt in a request that counts tokens. Raises `ApiError` (400)."""
    request = members("", read_body(body))
    inner = request.get("generateContentRequest")
    if inner is not None:
        if "contents" in request:
            raise bad("contents", "contents and generateContentRequest exclude each other")
        request = members("generateContentRequest", inner)
    refuse(request, _REFUSED)
    functions = read_functions(request.get("tools", []))
    _, shown = function_choice(request.get("toolConfig", {}), functions)
    history = canonical_history(request.get("systemInstruction"), request.get("contents", []))
    return Prompt(history.canonical(), functions_json(shown))


def _history(request: Mapping[str, Any]) -> GoogleHistory:
    history = canonical_history(request.get("systemInstruction"), request.get("contents", []))
    if history.ends_with_assistant:
        raise bad("contents", _NO_PREFILL)
    return history


def _sampling(config: Mapping[str, Any]) -> Sampling:
    asked: dict[str, Any] = {}
    for name, value in config.items():
        place = f"{_CONFIG}.{name}"
        if name in _SAMPLING:
            field, check = _SAMPLING[name]
            asked[field] = check(place, value)
        elif name not in _READ_ELSEWHERE:
            _HARMLESS.get(name, unsupported())(place, value)
    place = f"{_CONFIG}.logprobs"
    most = _whole(0, MOST_LOGPROBS)(place, config.get("logprobs", 0))
    if most and not _flag(config, "responseLogprobs"):
        raise bad(place, f"{place} needs {_CONFIG}.responseLogprobs to be true")
    if most:
        asked["top_logprobs"] = most
    if (schema := _answer_schema(config)) is not None:
        asked["json_schema"] = schema
    return Sampling(**asked)


def _answer_schema(config: Mapping[str, Any]) -> str | None:
    names = [name for name in _SCHEMAS if name in config]
    kind = config.get("responseMimeType", "text/plain")
    where = f"{_CONFIG}.responseMimeType"
    if kind not in ("text/plain", "application/json"):
        raise bad(where, f"{where} must be text/plain or application/json")
    if not names:
        return _ANY_JSON if kind == "application/json" else None
    place = f"{_CONFIG}.{names[0]}"
    if len(names) > 1:
        raise bad(place, f"{place} and {_CONFIG}.{names[1]} exclude each other")
    if kind == "text/plain":
        raise bad(place, f"{place} needs {where} to be application/json")
    schema = config[names[0]]
    if names[0] == "responseSchema":
        schema = json_schema(place, schema)
    if not isinstance(schema, dict):
        raise bad(place, f"{place} must be an object")
    return ordered_json(schema, place).decode()


def _shows_thoughts(config: Mapping[str, Any]) -> bool:
    """Return whether the agent gets thoughts as text. A signature holds them in any case."""
    place = f"{_CONFIG}.thinkingConfig"
    thinking = members(place, config.get("thinkingConfig", {}))
    return flag(f"{place}.includeThoughts", thinking.get("includeThoughts", False))


def _flag(config: Mapping[str, Any], name: str) -> bool:
    return flag(f"{_CONFIG}.{name}", config.get(name, False))


def _whole(low: int, high: int) -> Callable[[str, Any], int]:
    check = whole(low, high)

    def check_number(name: str, value: Any) -> int:
        # The vendor's client sends some whole numbers as floats, such as `topK`.
        return check(name, int(value) if isinstance(value, float) and value.is_integer() else value)

    return check_number


_SAMPLING: Mapping[str, tuple[str, ParameterCheck]] = {
    "temperature": ("temperature", number(0, 2)),
    "topP": ("top_p", number(0, 1)),
    "topK": ("top_k", _whole(0, INT32)),
    "maxOutputTokens": ("max_tokens", _whole(1, INT32)),
    "stopSequences": ("stop", stop_list),
    "seed": ("seed", _whole(-INT64, INT64)),
    "presencePenalty": ("presence_penalty", number(-2, 2)),
    "frequencyPenalty": ("frequency_penalty", number(-2, 2)),
}
_SCHEMAS = ("responseSchema", "responseJsonSchema", "_responseJsonSchema")
_READ_ELSEWHERE = frozenset(
    {
        *_SCHEMAS,
        "candidateCount",
        "logprobs",
        "responseLogprobs",
        "responseMimeType",
        "thinkingConfig",
    }
)
_HARMLESS: Mapping[str, ParameterCheck] = {
    "responseModalities": unsupported([], ["TEXT"], ["MODALITY_UNSPECIFIED"]),
    "enableEnhancedCivicAnswers": unsupported(False),
}
_REFUSED: Mapping[str, ParameterCheck] = {
    "cachedContent": unsupported(""),
}
