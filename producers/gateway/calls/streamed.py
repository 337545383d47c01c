"""Replies to one streamed call, as they come, to the bytes its client gets. Pure."""

from collections.abc import Callable
from dataclasses import replace

from producers.gateway.calls.delivered import Delivered
from producers.gateway.dialects.canonical import CanonicalRequest
from producers.gateway.dialects.dialect import Events, Piece
from producers.gateway.errors import ApiError, refused
from producers.gateway.link.pending import OK, Reply
from schemas.records import CommandAnswered, ReplyDelta, ReplyFinished, TokenTensor
from schemas.tokens import TOKEN_BYTES

_COMMENT = b": keep-alive\n\n"
"""What may stand before an answer in every dialect."""


class StreamedAnswer:
    """All choices of one call; `take` every reply until `complete`.

    `begin` makes the writer for an answer of the given turn, which a retry's first reply tells.
    """

    def __init__(self, request: CanonicalRequest, begin: Callable[[str], Events]) -> None:
        self._request = request
        self._begin = begin
        self._events: Events | None = None
        self._delivered = [Delivered() for _ in range(request.choices)]
        self._answers: dict[int, ReplyFinished] = {}
        self.repeated = 0
        """Deltas that the client had or that did not follow what it had."""

    @property
    def complete(self) -> bool:
        """Whether all choices are finished."""
        return len(self._answers) == self._request.choices

    @property
    def answers(self) -> list[ReplyFinished]:
        """The finished choices by number."""
        return [self._answers[choice] for choice in sorted(self._answers)]

    def take(self, choice: int, reply: Reply) -> bytes:
        """What to send next; empty when nothing. Raises `ApiError` when the turn failed."""
        if self.complete:
            return b""
        if isinstance(reply, ReplyDelta) and not reply.token_count:
            return _COMMENT if self._events is None else self._events.keep_alive()
        if isinstance(reply, ReplyDelta):
            events, data = self._opened(choice, reply)
            return data + self._delta(events, choice, reply)
        answer = finished(reply)
        if choice in self._answers:
            return b""
        self._answers[choice] = answer
        events, data = self._opened(choice, answer)
        data += self._rest(events, choice, answer) + events.finish(choice, answer)
        return data + events.end(self.answers) if self.complete else data

    def failed(self, error: ApiError, turn_id: str) -> bytes:
        """What ends the answer when no more will come; `turn_id` where no reply named one."""
        return (self._events or self._begin(turn_id)).failed(error)

    def _opened(self, choice: int, reply: ReplyDelta | ReplyFinished) -> tuple[Events, bytes]:
        if self._events is not None:
            return self._events, b""
        self._events = self._begin(answered_turn(choice, reply))
        return self._events, self._events.open(reply.prompt_tokens)

    def _delta(self, events: Events, choice: int, reply: ReplyDelta) -> bytes:
        if not self._delivered[choice].take(reply):
            self.repeated += 1
            return b""
        if reply.delta is None and not self._request.wants_logprobs:
            return b""
        piece = Piece(
            reply.delta or b"{}",
            reply.token_ids,
            reply.logprobs,
            reply.tensors,
            reply.token_offset,
        )
        return events.delta(choice, piece)

    def _rest(self, events: Events, choice: int, answer: ReplyFinished) -> bytes:
        delivered = self._delivered[choice]
        rest = delivered.rest(answer)
        offset = delivered.offset
        start = offset * TOKEN_BYTES
        ids = answer.token_ids[start:] if answer.token_ids else None
        logprobs = answer.logprobs[start:] if answer.logprobs else None
        if not rest and not ids:
            return b""
        tensors = [_from_token(tensor, offset) for tensor in answer.tensors]
        return events.delta(choice, Piece(rest or b"{}", ids, logprobs, tensors, offset))


def _from_token(tensor: TokenTensor, offset: int) -> TokenTensor:
    """Without the rows of tokens before `offset`."""
    offset = min(offset, tensor.to_token)
    rows = tensor.to_token - tensor.from_token
    if not tensor.data or not rows or offset <= tensor.from_token:
        return tensor
    size = len(tensor.data) // rows
    data = tensor.data[(offset - tensor.from_token) * size :]
    shape = (tensor.to_token - offset, *tensor.shape[1:])
    return replace(tensor, from_token=offset, shape=shape, data=data)


def answered_turn(choice: int, reply: ReplyDelta | ReplyFinished) -> str:
    """The turn that answers a call, by a reply to one of its choices."""
    return reply.turn_id.removesuffix(f".{choice}") if choice else reply.turn_id


def finished(reply: Reply) -> ReplyFinished:
    """The reply as a whole answer. Raises `ApiError` when it says that there is none."""
    if isinstance(reply, ReplyFinished) and reply.status == OK:
        return reply
    if isinstance(reply, ReplyFinished | CommandAnswered):
        raise refused(reply.status, reply.reason, reply.detail)
    raise TypeError(f"{type(reply).__name__} does not end a turn")
