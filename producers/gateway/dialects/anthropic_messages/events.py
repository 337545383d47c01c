"""Streamed answers of the Anthropic messages dialect, as server-sent events. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from seamlessflow.producers.gateway.dialects.anthropic_messages.response import (
    ending,
    error_body,
    head,
    prompt_usage,
    usage,
)
from seamlessflow.producers.gateway.dialects.call_arguments import call_input
from seamlessflow.producers.gateway.dialects.canonical import CanonicalRequest
from seamlessflow.producers.gateway.dialects.dialect import ChoiceDelta
from seamlessflow.producers.gateway.dialects.event_lines import event
from seamlessflow.producers.gateway.errors import ApiError
from seamlessflow.schemas.records import ReplyFinished

_PING = b'event: ping\ndata: {"type":"ping"}\n\n'


class MessageEvents:
    """The events of one answer; each method returns the bytes to send.

    Content is sent in blocks, one open at a time. Text is sent as it arrives, a tool call as a
    whole.
    """

    def __init__(self, turn_id: str, created: int, request: CanonicalRequest) -> None:
        self._turn_id = turn_id
        self._head = head(turn_id, request)
        self._thinking = request.echoed["thinking"]
        self._open: str | None = None
        """Type of the open block, or None."""
        self._begun = 0
        """Count of blocks that have begun."""

    def open(self, prompt_tokens: int) -> bytes:
        """Begin the message, without content; its token counts are repeated at the end."""
        message = {**self._head, "usage": prompt_usage(prompt_tokens)}
        return _event("message_start", message=message)

    def delta(self, choice: int, piece: ChoiceDelta) -> bytes:
        """Write the next part of the message: thinking, then text, then calls."""
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
            "message_delta", delta=ending(answer), usage=usage(answer)
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


def _event(kind: str, **members: object) -> bytes:
    return event(orjson.dumps({"type": kind, **members}), kind)
