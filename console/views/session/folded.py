"""A session folded from its events, with the events that counted. They show who sampled what.

It is folded as by the manager: an event does not count if its worker or manager no longer had the
turn. Pure; called by `reasons.py`.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from seamlessflow.consumers.trajectories.sessions.message_keys import Strictness
from seamlessflow.consumers.trajectories.sessions.partition import LoggedPartition
from seamlessflow.consumers.trajectories.sessions.session import Output, Session
from seamlessflow.infra.kafka.client import Received
from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Record
from seamlessflow.schemas.tokens import TOKEN_BYTES

LoggedOutput = tuple[Output, Received]
"""An event with sampled tokens, and its place."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """Tokens in an answer that one dispatch sampled on one worker."""

    turn_id: str
    dispatch: int
    worker: str
    incarnation: str
    begin: int
    """First token, counted in the answer."""
    end: int
    """Token behind the last."""
    because: str
    """Reason for the dispatch."""
    interrupted: str
    """Reason why the worker handed the turn back; empty if it did not."""
    dispatched: Received | None
    outputs: tuple[Received, ...]
    """Events with its tokens, in order."""
    begins: tuple[int, ...]
    """Each event's first token, counted in the answer."""


@dataclass(frozen=True)
class FoldedSession:
    """A session, and the events that the fold accepted, in log order."""

    session: Session
    partition: int
    events: tuple[Received, ...]

    @cached_property
    def stretches(self) -> tuple[Stretch, ...]:
        """Parts of all answers by dispatch, in log order, without parts that have no token."""
        dispatched: dict[tuple[str, int], Received] = {}
        outputs: dict[tuple[str, int], list[LoggedOutput]] = {}
        for item in self.events:
            record = item.record
            if isinstance(record, r.TurnDispatched):
                dispatched[record.turn_id, record.dispatch] = item
            elif isinstance(record, Output):
                outputs.setdefault((record.turn_id, record.dispatch), []).append((record, item))
        made = (_stretch(items, dispatched.get(key)) for key, items in outputs.items())
        return tuple(stretch for stretch in made if stretch.end > stretch.begin)

    @cached_property
    def by_turn(self) -> dict[str, list[Received]]:
        """Its accepted events by turn, in log order."""
        events: dict[str, list[Received]] = {}
        for item in self.events:
            turn_id = getattr(item.record, "turn_id", None)
            if turn_id is not None:
                events.setdefault(turn_id, []).append(item)
        return events

    def event(self, *kinds: type[Record], turn_id: str | None = None) -> Received | None:
        """Return the newest event of these types, or None; `turn_id`: only that turn's events."""
        events: Sequence[Received] = (
            self.events if turn_id is None else self.by_turn.get(turn_id, ())
        )
        return next((item for item in reversed(events) if isinstance(item.record, kinds)), None)


def fold_session(
    events: Iterable[Received], session_id: str, strictness: Callable[[str], Strictness]
) -> FoldedSession | None:
    """Return the session as its partition's events leave it, or None if none of them opened it.

    `events`: its own and its partition's claims, in log order. Raises `NewerRelease`.
    """
    log: LoggedPartition | None = None
    counted: list[Received] = []
    for item in events:
        log = log or LoggedPartition(item.partition)
        accepted = log.apply(item.record, item.offset, strictness).accepted
        if accepted and getattr(item.record, "session_id", None) == session_id:
            counted.append(item)
    session = None if log is None else log.sessions.get(session_id)
    return (
        None
        if session is None or log is None
        else FoldedSession(session, log.number, tuple(counted))
    )


def _stretch(outputs: Sequence[LoggedOutput], dispatched: Received | None) -> Stretch:
    (record, _) = outputs[0]
    (last, _) = outputs[-1]
    order = dispatched.record if dispatched else None
    return Stretch(
        turn_id=record.turn_id,
        dispatch=record.dispatch,
        worker=record.worker,
        incarnation=record.incarnation,
        begin=record.token_offset,
        end=last.token_offset + len(last.token_ids) // TOKEN_BYTES,
        because=order.reason if isinstance(order, r.TurnDispatched) else "",
        interrupted=last.reason if isinstance(last, r.TurnInterrupted) else "",
        dispatched=dispatched,
        outputs=tuple(item for _, item in outputs),
        begins=tuple(event.token_offset for event, _ in outputs),
    )
