"""Parameters in a Responses request that its answer repeats, and their types. Pure.

Clients parse the answer by the vendor's types, so a value with another type is refused. An object's
unknown members are repeated as they are.
"""

from collections.abc import Mapping
from typing import Any

from seamlessflow.producers.gateway.dialects.canonical import ordered_json
from seamlessflow.producers.gateway.dialects.parameters import (
    INT32,
    ParameterCheck,
    flag,
    text,
    whole,
)
from seamlessflow.producers.gateway.errors import bad

LOGPROBS = "message.output_text.logprobs"
ENCRYPTED = "reasoning.encrypted_content"
_INCLUDABLE = (
    LOGPROBS,
    ENCRYPTED,
    "file_search_call.results",
    "web_search_call.results",
    "web_search_call.action.sources",
    "message.input_image.image_url",
    "computer_call_output.output.image_url",
    "code_interpreter_call.outputs",
)
_TRUNCATIONS = ("auto", "disabled")


def echoed(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters that the answer repeats.

    Raises `ApiError` for a value that has a wrong type, or that cannot be written as JSON again.
    """
    repeated = {name: request[name] for name in ECHOED if name in request}
    for name in repeated:
        if name in _CHECKS:
            _CHECKS[name](name, repeated[name])
        ordered_json(repeated[name], name)
    return repeated


def _object(name: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise bad(name, f"{name} must be an object")
    return value


def _included(name: str, value: Any) -> None:
    if not isinstance(value, list):
        raise bad(name, f"{name} must be a list of texts")
    for n, item in enumerate(value):
        if item not in _INCLUDABLE:
            raise bad(f"{name}[{n}]", f"{name}[{n}] must be one of {', '.join(_INCLUDABLE)}")


def _metadata(name: str, value: Any) -> None:
    for member, label in _object(name, value).items():
        text(f"{name}.{member}", label)


def _reasoning(name: str, value: Any) -> None:
    settings = _object(name, value)
    for member in ("effort", "summary", "generate_summary"):
        if settings.get(member) is not None:
            text(f"{name}.{member}", settings[member])


def _truncation(name: str, value: Any) -> None:
    if value not in _TRUNCATIONS:
        raise bad(name, f"{name} must be one of {', '.join(_TRUNCATIONS)}")


_CHECKS: Mapping[str, ParameterCheck] = {
    "include": _included,
    "max_tool_calls": whole(1, INT32),
    "metadata": _metadata,
    "prompt_cache_key": text,
    "reasoning": _reasoning,
    "safety_identifier": text,
    "service_tier": text,
    "store": flag,
    "truncation": _truncation,
    "user": text,
}
"""Checks for the parameters that no other module reads."""
ECHOED = (
    "include",
    "instructions",
    "max_output_tokens",
    "max_tool_calls",
    "metadata",
    "parallel_tool_calls",
    "previous_response_id",
    "prompt_cache_key",
    "reasoning",
    "safety_identifier",
    "service_tier",
    "store",
    "temperature",
    "text",
    "tool_choice",
    "top_logprobs",
    "top_p",
    "truncation",
    "user",
)
