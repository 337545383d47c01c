"""Which parameter of a call an error is about that the manager or a worker found. Pure.

They know the canonical request alone, so an error that they write has no name of the dialect's.
"""

import re
from collections.abc import Mapping

from producers.gateway.dialects.canonical import CanonicalRequest
from producers.gateway.dialects.dialect import RESPONSE
from producers.gateway.errors import ApiError
from schemas.records import Sampling

_NOTHING_ASKED = Sampling()
_CODES = ("bad_request", "unsupported_value")
_WORD = re.compile(r"[a-z_]+")
_NAMED_ALIKE = (
    "min_p",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "logit_bias",
    "min_tokens",
    "seed",
    "top_logprobs",
)
"""Fields of `Sampling` that bear the name of the parameter they come from."""
_SCHEMA: Mapping[str, str] = {
    "openai.chat": "response_format",
    "openai.responses": "text.format",
    "anthropic.messages": "output_config.format",
}


def blame(error: ApiError, request: CanonicalRequest) -> None:
    """Names in an error the parameter it is about, where that can be told."""
    if error.status != 400 or error.param is not None:
        return
    if error.code == "previous_response_not_found" and request.previous_turn is not None:
        error.param = "previous_response_id"
        error.message = f"there is no response {RESPONSE + request.previous_turn!r} to go on from"
    elif error.code in _CODES:
        error.param = _parameter(error.message, request)


def _parameter(message: str, request: CanonicalRequest) -> str | None:
    asked = [
        name
        for name in _NAMED_ALIKE
        if getattr(request.sampling, name) != getattr(_NOTHING_ASKED, name)
    ]
    for word in _WORD.findall(message):
        if word in asked:
            return str(word)
    if request.sampling.json_schema is not None and "structured output" in message:
        return _SCHEMA.get(request.dialect)
    return "prompt" if request.raw and "vocabulary" in message else None
