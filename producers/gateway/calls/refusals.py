"""Refusals that name a call's parameter in the dialect's words. Pure; the same for all dialects.

An engine that samples by a schema cannot sample a tool call. So a request that forces a call goes
without its schema. The vendors do the same: there a schema binds only texts. If the model may
choose whether to call a tool, a schema is refused.

Managers and workers know only the canonical request, so their errors cannot name the client's
parameter.
"""

import re
from collections.abc import Mapping
from dataclasses import replace

from seamlessflow.producers.gateway.dialects.canonical import CanonicalRequest
from seamlessflow.producers.gateway.dialects.dialect import RESPONSE
from seamlessflow.producers.gateway.errors import ApiError
from seamlessflow.schemas.records import Sampling

SCHEMA_PARAMETERS: Mapping[str, str] = {
    "openai.chat": "response_format",
    "openai.responses": "text.format",
    "anthropic.messages": "output_config.format",
    "google.content": "generationConfig.responseSchema",
}
"""By dialect, the parameter that holds a schema."""
_VENDORS_WORDS: Mapping[str, str] = {
    "google.content": "Function calling with a response mime type: 'application/json' is "
    "unsupported"
}
_REMEDY = (
    "force a call (the schema then does not bind that answer), or let the model call none (the "
    "answer then obeys the schema)"
)
_NOTHING_ASKED = Sampling()
_CODES = ("bad_request", "unsupported_value")
_PROMPTS = {"openai.completions": "prompt", "vllm.generate": "token_ids"}
"""By dialect, the parameter that holds a prompt's token ids."""
_WORD = re.compile(r"[a-z_]+")
_SAME_NAME = (
    "min_p",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "logit_bias",
    "min_tokens",
    "seed",
    "top_logprobs",
)
"""`Sampling` fields that mostly have their parameter's name."""
_OTHER_NAMES: Mapping[str, Mapping[str, str]] = {
    "google.content": {
        "presence_penalty": "generationConfig.presencePenalty",
        "frequency_penalty": "generationConfig.frequencyPenalty",
        "seed": "generationConfig.seed",
        "top_logprobs": "generationConfig.logprobs",
    },
}


def with_bound_schema(request: CanonicalRequest) -> CanonicalRequest:
    """Return the request, without its schema if it forces a call. Raises `ApiError` (400)."""
    if request.sampling.json_schema is None or not request.tools or request.tool_choice == "none":
        return request
    if request.tool_choice != "auto":
        return replace(request, sampling=replace(request.sampling, json_schema=None))
    param = SCHEMA_PARAMETERS.get(request.dialect)
    words = f"{param} is not supported with tools that the model may call"
    message = f"{_VENDORS_WORDS.get(request.dialect, words)}: {_REMEDY}"
    raise ApiError(400, message, code="unsupported_value", param=param)


def blame(error: ApiError, request: CanonicalRequest) -> None:
    """Set the parameter that an error is about, if its message shows which one."""
    if error.status != 400 or error.param is not None:
        return
    if error.code == "previous_response_not_found" and request.previous_turn is not None:
        error.param = "previous_response_id"
        error.message = f"there is no response {RESPONSE + request.previous_turn!r} to continue"
    elif error.code == "item_not_found":
        error.param = "input"
    elif error.code in _CODES:
        error.param = _parameter(error.message, request)


def _parameter(message: str, request: CanonicalRequest) -> str | None:
    asked = [
        name
        for name in _SAME_NAME
        if getattr(request.sampling, name) != getattr(_NOTHING_ASKED, name)
    ]
    for word in _WORD.findall(message):
        if word in asked:
            return _OTHER_NAMES.get(request.dialect, {}).get(word, str(word))
    if request.tools is not None and "tools cannot be used" in message:
        return "tools"
    if request.template_args is not None and "template does not read" in message:
        return "chat_template_kwargs"
    if request.sampling.json_schema is not None and "structured output" in message:
        return SCHEMA_PARAMETERS.get(request.dialect)
    return _PROMPTS.get(request.dialect) if "vocabulary" in message else None
