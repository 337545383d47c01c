"""The parameter that a manager's or worker's error is about, in the dialect's words. Pure.

Managers and workers know only the canonical request, so their errors name no parameter of it.
"""

import re
from collections.abc import Mapping

from seamlessflow.producers.gateway.calls.schemas_and_tools import SCHEMA_PARAMETERS
from seamlessflow.producers.gateway.dialects.canonical import CanonicalRequest
from seamlessflow.producers.gateway.dialects.dialect import RESPONSE
from seamlessflow.producers.gateway.errors import ApiError
from seamlessflow.schemas.records import Sampling

_NOTHING_ASKED = Sampling()
_CODES = ("bad_request", "unsupported_value")
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
"""Fields of `Sampling` that mostly have the name of the parameter they come from."""
_OTHER_NAMES: Mapping[str, Mapping[str, str]] = {
    "google.content": {
        "presence_penalty": "generationConfig.presencePenalty",
        "frequency_penalty": "generationConfig.frequencyPenalty",
        "seed": "generationConfig.seed",
        "top_logprobs": "generationConfig.logprobs",
    },
}


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
    if request.sampling.json_schema is not None and "structured output" in message:
        return SCHEMA_PARAMETERS.get(request.dialect)
    return "prompt" if request.raw and "vocabulary" in message else None
