"""The Anthropic messages dialect, to the agent: server-sent events of a streamed answer. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from producers.gateway.dialects.anthropic_messages.response import (
    ending,
    error_body,
    head,
    prompt_usage,
    usage,
)
from producers.gateway.dialects.anthropic_messages.tools import call_input
from producers.gateway.dialects.canonical import CanonicalRequest
from producers.gateway.dialects.dialect import ChoiceDelta
from producers.gateway.errors import ApiError
from schemas.records import ReplyFinished

_PING = b'event: ping\ndata: {"type":"ping"}\n\n'


class MessageEvents:
    """Makes the events of one answer; each method gives bytes to send.

    Content comes in blocks, one open at a time; each delta goes out as it comes. A tool call comes
    whole.
    """

    def __init__(self, turn_id: str, created: int, request: CanonicalRequest) -> None:
        self._turn_id = turn_id
        self._head = head(turn_id, request)
        self._thinking = request.echoed["thinking"]
        self._open: str | None = None
        """Type of the open block."""
        self._begun = 0
        """How many blocks began."""

    def open(self, prompt_tokens: int) -> bytes:
        """The message without content; its counts come again with the end."""
        message = {**self._head, "usage": prompt_usage(prompt_tokens)}
        return _event("message_start", message=message)

    def delta(self, choice: int, piece: ChoiceDelta) -> bytes:
        """More of the message, in the order in which messages have it."""
        read = orjson.loads(piece.delta)
        data = b""
        if thought := read.get("reasoning_content"):
            data += self._thought(thought)
        if text := read.get("content"):
            data += self._enter("text", {"text": ""})
            data += self._delta({"type": "text_delta", "text": text})
        for call in read.get("tool_calls") or ():
            data += self._call(call)
        return data

    def finish(self, choice: int, answer: ReplyFinished) -> bytes:
        """The end of the last block, and why and at what cost it all ended."""
        return self._close() + _event("message_delta", delta=ending(answer), usage=usage(answer))

    def end(self, answers: Sequence[ReplyFinished]) -> bytes:
        """Nothing comes behind it."""
        return _event("message_stop")

    def failed(self, error: ApiError) -> bytes:
        """What ends a stream that fails after it began."""
        return b"event: error\ndata: " + error_body(error, self._turn_id) + b"\n\n"

    def keep_alive(self) -> bytes:
        """An event that every client skips."""
        return _PING

    def _thought(self, text: str) -> bytes:
        if self._thinking == "hidden":
            return _PING
        data = self._enter("thinking", {"thinking": "", "signature": ""})
        if self._thinking == "omitted":
            return data + _PING
        return data + self._delta({"type": "thinking_delta", "thinking": text})

    def _call(self, call: Mapping[str, Any]) -> bytes:
        function = call["function"]
        named = {"id": call["id"], "name": function["name"], "input": {}}
        sampled = call_input(function["arguments"]).decode()
        data = self._close() + self._enter("tool_use", named)
        return data + self._delta({"type": "input_json_delta", "partial_json": sampled})

    def _enter(self, kind: str, empty: Mapping[str, object]) -> bytes:
        if self._open == kind:
            return b""
        data = self._close()
        block = {"type": kind, **empty}
        data += _event("content_block_start", index=self._begun, content_block=block)
        self._open = kind
        self._begun += 1
        return data

    def _delta(self, delta: Mapping[str, str]) -> bytes:
        return _event("content_block_delta", index=self._begun - 1, delta=delta)

    def _close(self) -> bytes:
        if self._open is None:
            return b""
        signed = {"type": "signature_delta", "signature": self._turn_id}
        data = self._delta(signed) if self._open == "thinking" else b""
        self._open = None
        return data + _event("content_block_stop", index=self._begun - 1)


def _event(kind: str, **members: object) -> bytes:
    data = orjson.dumps({"type": kind, **members})
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), data)
