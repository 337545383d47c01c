"""Whole answers and errors of the Anthropic messages dialect. Pure.

A message is called `msg_<turn id>`. Clients expect thinking to be signed; the signature is the turn
id, which the gateway does not check when it comes back.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from seamlessflow.producers.gateway.dialects.call_arguments import call_input
from seamlessflow.producers.gateway.dialects.canonical import CanonicalRequest
from seamlessflow.producers.gateway.dialects.dialect import MESSAGE
from seamlessflow.producers.gateway.errors import ApiError
from seamlessflow.schemas.records import ReplyFinished

_TOO_LONG = "prompt is too long: {} tokens > {} maximum"
_STOP_REASONS = {"length": "max_tokens", "tool_calls": "tool_use"}
_TYPES = {
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    409: "conflict_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
    529: "overloaded_error",
}


def completion(
    turn_id: str, created: int, request: CanonicalRequest, answers: Sequence[ReplyFinished]
) -> bytes:
    """Return the body of a whole answer."""
    answer = answers[0]
    read = orjson.loads(answer.message or b"{}")
    body = {
        **head(turn_id, request),
        "content": _content(read, turn_id, request),
        **ending(answer),
        "usage": usage(answer),
    }
    return orjson.dumps(body)


def error_body(error: ApiError, request_id: str = "") -> bytes:
    """Return the body of an error in Anthropic's format.

    A prompt that is too long also gets Anthropic's words, which agents look for.
    """
    message = error.message
    if error.prompt_lengths is not None:
        message = _TOO_LONG.format(*error.prompt_lengths)
    usual = "api_error" if error.status >= 500 else "invalid_request_error"
    shown: dict[str, object] = {"type": _TYPES.get(error.status, usual), "message": message}
    if error.code:
        shown["details"] = {"error_code": error.code, "param": error.param}
    known_id = request_id or error.request_id or None
    return orjson.dumps({"type": "error", "error": shown, "request_id": known_id})


def head(turn_id: str, request: CanonicalRequest) -> dict[str, object]:
    """Return the members of a message that has no content yet."""
    return {
        "id": MESSAGE + turn_id,
        "type": "message",
        "role": "assistant",
        "model": request.model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
    }


def ending(answer: ReplyFinished) -> dict[str, str | None]:
    """Return why a message ended. One with calls ended with them, even if text followed."""
    stop = answer.stop_sequence if answer.finish_reason == "stop" else None
    usual = "end_turn" if stop is None else "stop_sequence"
    reason = _STOP_REASONS.get(answer.finish_reason, usual)
    return {"stop_reason": reason, "stop_sequence": stop}


def prompt_usage(prompt_tokens: int) -> dict[str, object]:
    """Return the token counts before sampling.

    Those of the engine's cache are not known. They are 0: clients add them up without a check.
    """
    return {
        "input_tokens": prompt_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
        "output_tokens": 0,
    }


def usage(answer: ReplyFinished) -> dict[str, object]:
    """Return the token counts; those of thinking only if the renderer can count them."""
    counts = prompt_usage(answer.prompt_tokens) | {"output_tokens": answer.completion_tokens}
    if answer.reasoning_tokens is None:
        return counts
    return counts | {"output_tokens_details": {"thinking_tokens": answer.reasoning_tokens}}


def _content(
    message: Mapping[str, Any], turn_id: str, request: CanonicalRequest
) -> list[dict[str, object]]:
    blocks: list[dict[str, object]] = []
    thought, wanted = message.get("reasoning_content"), request.echoed["thinking"]
    if thought and wanted != "hidden":
        shown = thought if wanted == "shown" else ""
        blocks.append({"type": "thinking", "thinking": shown, "signature": turn_id})
    if text := message.get("content"):
        blocks.append({"type": "text", "text": text})
    for call in message.get("tool_calls") or ():
        function = call["function"]
        arguments = orjson.Fragment(call_input(function["arguments"]))
        blocks.append(
            {"type": "tool_use", "id": call["id"], "name": function["name"], "input": arguments}
        )
    return blocks
