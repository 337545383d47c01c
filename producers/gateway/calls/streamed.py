"""One call's streamed answer: from replies, one at a time, to bytes for the client. Pure.

Kafka delivers replies at least once. A repeated delta is recognized by its token offset and
dropped. A gap should not occur. But if a retry joined in the middle of a turn, there is one. The
client then gets no more deltas until the turn ends. At the end it gets the rest, computed from the
whole message.

The manager merges the deltas that it reads together, and a fast engine samples several kinds at
once: reasoning, text, calls. Clients expect only one kind in a chunk. Some read its text and skip
its calls; some read only its first call. So no event in any dialect has more than one kind, or more
than one call.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import orjson

from seamlessflow.producers.gateway.dialects.canonical import CanonicalRequest
from seamlessflow.producers.gateway.dialects.dialect import ChoiceDelta, Events
from seamlessflow.producers.gateway.errors import ApiError, refused
from seamlessflow.producers.gateway.replies import OK, ReplyRecord
from seamlessflow.schemas.records import CommandAnswered, ReplyDelta, ReplyFinished, TokenTensor
from seamlessflow.schemas.tokens import TOKEN_BYTES

_CALLS = b'"tool_calls":'
_TEXTS = ("reasoning_content", "content")
_NAMED = tuple(b'"%b":' % name.encode() for name in _TEXTS)


class StreamedAnswer:
    """One call's answer with all its choices; `write_reply` every reply until `complete`.

    `begin` makes the event writer for a turn. A retry may join another turn, so the first reply
    decides which turn that is. Until then, `waiting` is sent to show that the call is alive.
    """

    def __init__(
        self, request: CanonicalRequest, begin: Callable[[str], Events], waiting: bytes
    ) -> None:
        self._request = request
        self._waiting = waiting
        self._begin = begin
        self._events: Events | None = None
        self._delivered = [Delivered() for _ in range(request.choices)]
        self._answers: dict[int, ReplyFinished] = {}
        self.repeated = 0
        """Count of dropped deltas: repeated ones, and those after a gap."""

    @property
    def complete(self) -> bool:
        """Return whether all choices are finished."""
        return len(self._answers) == self._request.choices

    @property
    def answers(self) -> list[ReplyFinished]:
        """Return the finished choices, ordered by number."""
        return [self._answers[choice] for choice in sorted(self._answers)]

    def write_reply(self, choice: int, reply: ReplyRecord) -> bytes:
        """Return the bytes to send for a reply, maybe none. Raises `ApiError` if it failed."""
        if self.complete:
            return b""
        if isinstance(reply, ReplyDelta) and not reply.token_count:
            # A delta without tokens means that the turn is still alive.
            return self._waiting if self._events is None else self._events.keep_alive()
        if isinstance(reply, ReplyDelta):
            events, data = self._opened_by(choice, reply)
            return data + self._delta(events, choice, reply)
        answer = finished(reply)
        if choice in self._answers:
            return b""
        self._answers[choice] = answer
        events, data = self._opened_by(choice, answer)
        data += self._rest(events, choice, answer) + events.finish(choice, answer)
        return data + events.end(self.answers) if self.complete else data

    def failed(self, error: ApiError, turn_id: str) -> bytes:
        """Return the bytes that end a failed answer; `turn_id` is used if no reply named a turn."""
        return (self._events or self._begin(turn_id)).failed(error)

    def _opened_by(self, choice: int, reply: ReplyDelta | ReplyFinished) -> tuple[Events, bytes]:
        if self._events is not None:
            return self._events, b""
        self._events = self._begin(answered_turn(choice, reply))
        return self._events, self._events.open(reply.prompt_tokens)

    def _delta(self, events: Events, choice: int, reply: ReplyDelta) -> bytes:
        if not self._delivered[choice].accept(reply):
            self.repeated += 1
            return b""
        asked = self._request
        if reply.delta is None and not (asked.wants_logprobs or asked.wants_token_ids):
            return b""
        piece = ChoiceDelta(
            reply.delta or b"{}",
            reply.token_ids,
            reply.logprobs,
            reply.tensors,
            reply.token_offset,
            reply.prompt_ids,
        )
        return _written(events, choice, piece)

    def _rest(self, events: Events, choice: int, answer: ReplyFinished) -> bytes:
        delivered = self._delivered[choice]
        rest = delivered.missing_delta(answer)
        offset = delivered.offset
        start = offset * TOKEN_BYTES
        ids = answer.token_ids[start:] if answer.token_ids else None
        logprobs = answer.logprobs[start:] if answer.logprobs else None
        if not rest and not ids:
            return b""
        tensors = [_from_token(tensor, offset) for tensor in answer.tensors]
        prompt_ids = None if offset else answer.prompt_ids
        piece = ChoiceDelta(rest or b"{}", ids, logprobs, tensors, offset, prompt_ids)
        return _written(events, choice, piece)


class Delivered:
    """One streamed choice's progress, in tokens."""

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


def answered_turn(choice: int, reply: ReplyDelta | ReplyFinished) -> str:
    """Return the id of the turn that answers a call, from a reply to one of its choices."""
    return reply.turn_id.removesuffix(f".{choice}") if choice else reply.turn_id


def finished(reply: ReplyRecord) -> ReplyFinished:
    """Return the reply as a whole answer. Raises `ApiError` if it reports a failure."""
    if isinstance(reply, ReplyFinished) and reply.status == OK:
        return reply
    if isinstance(reply, ReplyFinished | CommandAnswered):
        raise refused(reply.status, reply.reason, reply.detail)
    raise TypeError(f"{type(reply).__name__} does not end a turn")


def _written(events: Events, choice: int, piece: ChoiceDelta) -> bytes:
    """Return a piece's events, each with one kind; tokens go with the first event."""
    first, *others = delta_parts(piece.delta)
    data = events.delta(choice, piece._replace(delta=first))
    none = None if piece.token_ids is None else b""
    return data + b"".join(events.delta(choice, ChoiceDelta(other, none)) for other in others)


def delta_parts(delta: bytes) -> Sequence[bytes]:
    """Return deltas that hold reasoning, text or one call each, in sampling order.

    A further part of a call that has begun comes first. A delta with one kind is returned
    unchanged.
    """
    # Inside a text, these names' quotes would be escaped. So most deltas need no parsing.
    if _CALLS not in delta and not all(name in delta for name in _NAMED):
        return (delta,)
    parts = list(_parts(orjson.loads(delta)))
    return (delta,) if len(parts) < 2 else [orjson.dumps(part) for part in parts]


def _parts(read: Mapping[str, Any]) -> Iterator[Mapping[str, object]]:
    calls = read.get("tool_calls") or ()
    yield from ({"tool_calls": [call]} for call in calls if "id" not in call)
    yield from ({name: read[name]} for name in _TEXTS if read.get(name))
    yield from ({"tool_calls": [call]} for call in calls if "id" in call)


def missing(message: bytes | None, deltas: Sequence[bytes]) -> bytes | None:
    """Return the part of `message` that `deltas` lack, as a delta; None if they lack nothing."""
    if message is None:
        return None
    whole = orjson.loads(message)
    parts = [orjson.loads(delta) for delta in deltas]
    rest: dict[str, object] = {}
    for name in _TEXTS:
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
        # A call's first delta has its id and name; after it, only arguments can be missing.
        if index not in sent:
            rest.append({"index": index, **call})
        elif tail := call["function"]["arguments"][sent[index] :]:
            rest.append({"index": index, "function": {"arguments": tail}})
    return rest


def _from_token(tensor: TokenTensor, offset: int) -> TokenTensor:
    """Return the tensor without the rows for tokens before `offset`."""
    offset = min(offset, tensor.to_token)
    rows = tensor.to_token - tensor.from_token
    if not tensor.data or not rows or offset <= tensor.from_token:
        return tensor
    size = len(tensor.data) // rows
    data = tensor.data[(offset - tensor.from_token) * size :]
    shape = (tensor.to_token - offset, *tensor.shape[1:])
    return replace(tensor, from_token=offset, shape=shape, data=data)
