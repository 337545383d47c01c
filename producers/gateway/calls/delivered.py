"""The part of a streamed turn that its client already has. Pure.

Kafka delivers replies at least once; a repeated delta is dropped, by its token offset. A gap should
not occur. After one (a retry joined in the middle) the client gets no more deltas until the turn
ends, and then the rest of the message, computed from the whole message.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from seamlessflow.schemas.records import ReplyDelta, ReplyFinished


class Delivered:
    """The progress of one streamed choice, in tokens."""

    __slots__ = ("_deltas", "_gap", "offset")

    def __init__(self) -> None:
        self.offset = 0
        self._deltas: list[bytes] = []
        self._gap = False

    def accept(self, reply: ReplyDelta) -> bool:
        """Return whether the delta continues what the client has; if so, count it as sent."""
        if self._gap or reply.token_offset != self.offset:
            # A delta that reaches further than what the client has shows that tokens are missing.
            self._gap = self._gap or reply.token_offset + reply.token_count > self.offset
            return False
        self.offset += reply.token_count
        if reply.delta is not None:
            self._deltas.append(reply.delta)
        return True

    def missing_delta(self, reply: ReplyFinished) -> bytes | None:
        """Return the delta that completes the message, or None if nothing is missing."""
        if reply.delta is not None and not self._gap and reply.token_offset == self.offset:
            return reply.delta
        return missing(reply.message, self._deltas)


def missing(message: bytes | None, deltas: Sequence[bytes]) -> bytes | None:
    """Return the part of `message` that `deltas` lack, as a delta; None if they lack nothing."""
    if message is None:
        return None
    whole = orjson.loads(message)
    parts = [orjson.loads(delta) for delta in deltas]
    rest: dict[str, object] = {}
    for name in ("reasoning_content", "content"):
        sent = sum(len(part.get(name) or "") for part in parts)
        if tail := (whole.get(name) or "")[sent:]:
            rest[name] = tail
    if calls := _missing_calls(whole.get("tool_calls") or (), parts):
        rest["tool_calls"] = calls
    return orjson.dumps(rest) if rest else None


def _missing_calls(
    calls: Sequence[Mapping[str, Any]], parts: Sequence[Mapping[str, Any]]
) -> list[dict[str, object]]:
    sent: dict[int, int] = {}
    for part in parts:
        for call in part.get("tool_calls") or ():
            arguments = (call.get("function") or {}).get("arguments") or ""
            sent[call["index"]] = sent.get(call["index"], 0) + len(arguments)
    rest: list[dict[str, object]] = []
    for index, call in enumerate(calls):
        # The first delta of a call has its id and name; only arguments can be missing after it.
        if index not in sent:
            rest.append({"index": index, **call})
        elif tail := call["function"]["arguments"][sent[index] :]:
            rest.append({"index": index, "function": {"arguments": tail}})
    return rest
