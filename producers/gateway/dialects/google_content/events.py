"""Streamed answers of Google's `generateContent`, as events or as a JSON array. Pure.

Each event is a response with what came since the last one; the clients add them up. Text is sent as
it arrives, a call as a whole.
"""

from collections.abc import Sequence
from typing import Any

import orjson

from seamlessflow.producers.gateway.dialects.canonical import CanonicalRequest
from seamlessflow.producers.gateway.dialects.dialect import ChoiceDelta
from seamlessflow.producers.gateway.dialects.event_lines import event, on_one_line
from seamlessflow.producers.gateway.dialects.google_content.members import signature
from seamlessflow.producers.gateway.dialects.google_content.response import (
    Part,
    call_part,
    error_body,
    logprobs_result,
    reason,
    tail,
    usage,
)
from seamlessflow.producers.gateway.errors import ApiError
from seamlessflow.schemas.records import ReplyFinished

WAITING = b"\n\n"
"""Bytes that clients skip in both forms. The vendor's own client takes a comment for an error."""


class ContentEvents:
    """The events of one answer; each method returns the bytes to send."""

    def __init__(self, turn_id: str, created: int, request: CanonicalRequest) -> None:
        self._request = request
        self._tail = tail(turn_id, request)
        self._array = request.echoed["form"] == "array"
        self._begun = False
        self._unsigned: dict[int, str] = {}
        """By choice, the thought that no signature holds so far."""
        self._finished: list[ReplyFinished] = []

    def open(self, prompt_tokens: int) -> bytes:
        """Begin with nothing: the first event is a candidate's."""
        return b""

    def delta(self, choice: int, piece: ChoiceDelta) -> bytes:
        """Write the next part of a candidate: thoughts, then text, then calls."""
        read = orjson.loads(piece.delta)
        parts: list[Part] = []
        if thought := read.get("reasoning_content"):
            self._unsigned[choice] = self._unsigned.get(choice, "") + thought
            if self._request.echoed["thoughts"]:
                parts.append({"text": thought, "thought": True})
        if text := read.get("content"):
            parts.append({"text": text})
        parts += [
            {**call_part(call), **self._signed(choice)} for call in read.get("tool_calls") or ()
        ]
        scored = self._request.wants_logprobs and piece.logprobs is not None
        if not parts and not scored:
            return WAITING
        candidate = _candidate(choice, parts)
        if scored:
            most = self._request.sampling.top_logprobs
            candidate["logprobsResult"] = logprobs_result(piece, most, piece.from_token)
        return self._event({"candidates": [candidate], **self._tail})

    def finish(self, choice: int, answer: ReplyFinished) -> bytes:
        """End a candidate, with the token counts of all that have ended."""
        self._finished.append(answer)
        candidate = _candidate(choice, [{"text": "", **self._signed(choice)}])
        candidate["finishReason"] = reason(answer)
        counts = usage(self._finished)
        return self._event({"candidates": [candidate], "usageMetadata": counts, **self._tail})

    def end(self, answers: Sequence[ReplyFinished]) -> bytes:
        """End the answer."""
        return b"\n]\n" if self._array else b""

    def failed(self, error: ApiError) -> bytes:
        """End an answer that failed after it began."""
        return self._written(error_body(error)) + (b"\n]\n" if self._array else b"")

    def keep_alive(self) -> bytes:
        """Write blank lines, which every client skips."""
        return WAITING

    def _signed(self, choice: int) -> dict[str, object]:
        """Return the member that holds the thought so far, if there is any."""
        thought = self._unsigned.pop(choice, "")
        return {"thoughtSignature": signature(thought)} if thought else {}

    def _event(self, body: dict[str, object]) -> bytes:
        return self._written(orjson.dumps(body))

    def _written(self, body: bytes) -> bytes:
        if not self._array:
            return event(body)
        begin = b"\n,\r\n" if self._begun else b"["
        self._begun = True
        return begin + on_one_line(body)


def _candidate(choice: int, parts: Sequence[Part]) -> dict[str, Any]:
    return {"content": {"parts": parts, "role": "model"}, "index": choice}
