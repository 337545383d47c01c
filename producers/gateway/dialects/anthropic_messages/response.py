"""Answers and errors in the Anthropic messages dialect, as JSON and as server-sent events. Pure.

A message is called `msg_<turn id>`. Clients expect thinking to be signed. The signature is the turn
id. The gateway does not check it when it comes back.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from seamlessflow.producers.gateway.dialects.canonical import CanonicalRequest, call_input
from seamlessflow.producers.gateway.dialects.dialect import MESSAGE, ChoiceDelta, event
from seamlessflow.producers.gateway.errors import ApiError
from seamlessflow.schemas.records import ReplyFinished

_PING = b'event: ping\ndata: {"type":"ping"}\n\n'
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
    """Return a whole answer's body."""
    answer = answers[0]
    read = orjson.loads(answer.message or b"{}")
    body = {
        **_head(turn_id, request),
        "content": _content(read, turn_id, request),
        **_ending(answer),
        "usage": _usage(answer),
    }
    return orjson.dumps(body)


class MessageEvents:
    """The writer for one streamed answer; each method returns the bytes to send.

    Content is sent in blocks, and one block is open at a time. Text is sent as it arrives. A tool
    call is sent as a whole.
    """

    def __init__(self, turn_id: str, created: int, request: CanonicalRequest) -> None:
        self._turn_id = turn_id
        self._head = _head(turn_id, request)
        self._thinking = request.echoed["thinking"]
        self._open: str | None = None
        """The open block's type, or None."""
        self._begun = 0
        """Count of blocks that have begun."""

    def open(self, prompt_tokens: int) -> bytes:
        """Begin the message, without content; its token counts are repeated at the end."""
        message = {**self._head, "usage": _prompt_usage(prompt_tokens)}
        return _event("message_start", message=message)

    def delta(self, choice: int, piece: ChoiceDelta) -> bytes:
        """Write the message's next part: thinking, then text, then calls."""
        read = orjson.loads(piece.delta)
        data = b""
        if thought := read.get("reasoning_content"):
            data += self._add_thinking(thought)
        if text := read.get("content"):
            data += self._open_block("text", {"text": ""})
            data += self._delta({"type": "text_delta", "text": text})
        for call in read.get("tool_calls") or ():
            data += self._add_call(call)
        return data

    def finish(self, choice: int, answer: ReplyFinished) -> bytes:
        """End the last block, and write the stop reason and the token counts."""
        return self._close_block() + _event(
            "message_delta", delta=_ending(answer), usage=_usage(answer)
        )

    def end(self, answers: Sequence[ReplyFinished]) -> bytes:
        """End the stream."""
        return _event("message_stop")

    def failed(self, error: ApiError) -> bytes:
        """End a stream that failed after it began."""
        return event(error_body(error, self._turn_id), "error")

    def keep_alive(self) -> bytes:
        """Write an event that every client skips."""
        return _PING

    def _add_thinking(self, text: str) -> bytes:
        if self._thinking == "hidden":
            return _PING
        data = self._open_block("thinking", {"thinking": "", "signature": ""})
        if self._thinking == "omitted":
            return data + _PING
        return data + self._delta({"type": "thinking_delta", "thinking": text})

    def _add_call(self, call: Mapping[str, Any]) -> bytes:
        function = call["function"]
        named = {"id": call["id"], "name": function["name"], "input": {}}
        sampled = call_input(function["arguments"]).decode()
        data = self._close_block() + self._open_block("tool_use", named)
        return data + self._delta({"type": "input_json_delta", "partial_json": sampled})

    def _open_block(self, kind: str, empty: Mapping[str, object]) -> bytes:
        if self._open == kind:
            return b""
        data = self._close_block()
        block = {"type": kind, **empty}
        data += _event("content_block_start", index=self._begun, content_block=block)
        self._open = kind
        self._begun += 1
        return data

    def _delta(self, delta: Mapping[str, str]) -> bytes:
        return _event("content_block_delta", index=self._begun - 1, delta=delta)

    def _close_block(self) -> bytes:
        if self._open is None:
            return b""
        signed = {"type": "signature_delta", "signature": self._turn_id}
        data = self._delta(signed) if self._open == "thinking" else b""
        self._open = None
        return data + _event("content_block_stop", index=self._begun - 1)


def error_body(error: ApiError, request_id: str = "") -> bytes:
    """Return an error's body in Anthropic's format.

    If a prompt is too long, the message has Anthropic's wording, which agents look for.
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


def _head(turn_id: str, request: CanonicalRequest) -> dict[str, object]:
    """Return a message's members before it has any content."""
    return {
        "id": MESSAGE + turn_id,
        "type": "message",
        "role": "assistant",
        "model": request.model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
    }


def _ending(answer: ReplyFinished) -> dict[str, str | None]:
    """Return why a message ended. With tool calls it is `tool_use`, even if text followed them."""
    stop = answer.stop_sequence if answer.finish_reason == "stop" else None
    usual = "end_turn" if stop is None else "stop_sequence"
    reason = _STOP_REASONS.get(answer.finish_reason, usual)
    return {"stop_reason": reason, "stop_sequence": stop}


def _prompt_usage(prompt_tokens: int) -> dict[str, object]:
    """Return the token counts before sampling.

    The engine's cache counts are unknown. They are written as 0, because clients add them up
    without a check.
    """
    return {
        "input_tokens": prompt_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
        "output_tokens": 0,
    }


def _usage(answer: ReplyFinished) -> dict[str, object]:
    """Return the token counts, with thinking tokens only if the renderer can count them."""
    counts = _prompt_usage(answer.prompt_tokens) | {"output_tokens": answer.completion_tokens}
    if answer.reasoning_tokens is None:
        return counts
    return counts | {"output_tokens_details": {"thinking_tokens": answer.reasoning_tokens}}


def _content(
    message: Mapping[str, Any], turn_id: str, request: CanonicalRequest
) -> list[dict[str, object]]:
    blocks: list[dict[str, object]] = []
    thought = message.get("reasoning_content")
    wanted = request.echoed["thinking"]
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


def _event(kind: str, **members: object) -> bytes:
    return event(orjson.dumps({"type": kind, **members}), kind)
