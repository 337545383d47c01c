"""The replies that agents get, handled as the gateway does, by its own rules for repeated ones.

Two instances share one of these; a call waits at the instance that sent it.
"""

from dataclasses import dataclass, field

from seamlessflow.producers.gateway.calls.streamed import Delivered
from seamlessflow.producers.gateway.replies import PendingReplies
from seamlessflow.schemas import records as r

Finished = r.ReplyFinished | r.CommandAnswered


@dataclass(eq=False)
class Call:
    """An agent's call that waits for an answer."""

    command: r.Record
    instance: str
    waits_for: str
    for_turn: bool
    delivered: Delivered = field(default_factory=Delivered)
    deltas: list[r.ReplyDelta] = field(default_factory=list)
    """Deltas that the client got."""
    rest: bytes | None = None
    """Delta that the last reply added."""
    end: Finished | None = None

    @property
    def answer(self) -> r.ReplyFinished | None:
        """Return the whole answer, or None."""
        good = isinstance(self.end, r.ReplyFinished) and self.end.status == 200
        return self.end if good else None  # type: ignore[return-value]

    def take(self, reply: r.ReplyDelta | Finished) -> None:
        """Add the next reply, as a streamed call does."""
        if isinstance(reply, r.ReplyDelta):
            if self.delivered.accept(reply):
                self.deltas.append(reply)
            return
        self.end = reply
        if isinstance(reply, r.ReplyFinished) and reply.status == 200:
            self.rest = self.delivered.missing_delta(reply)


class Gateway:
    """All instances. `calls` holds every call that was made and not given up."""

    def __init__(self) -> None:
        self.calls: dict[str, Call] = {}
        self._pending: dict[str, PendingReplies[Call]] = {}

    def send(self, command: r.Record, command_id: str, instance: str, for_turn: bool) -> Call:
        """Add a call that waits for its answer."""
        call = Call(command, instance, command_id, for_turn)
        self.calls[command_id] = call
        self._pending.setdefault(instance, PendingReplies()).add(call)
        return call

    def give_up(self, command_id: str) -> None:
        """Remove a call whose client has left."""
        call = self.calls.get(command_id)
        if call is not None and call.end is None:
            del self.calls[command_id]
            self._pending[call.instance].remove(call)

    def take(self, reply: r.ReplyDelta | Finished) -> None:
        """Add a reply to the calls that wait for it."""
        pending = self._pending.get(reply.gateway)
        for call in list(pending.route(reply)) if pending is not None else []:
            call.take(reply)
            if call.end is not None and pending is not None:
                pending.remove(call)
