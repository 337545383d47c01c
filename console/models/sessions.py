"""Sessions on one partition of `sessions`: a row each, and the turns under way. A pure fold.

Rows stand in pages, in the order in which the sessions opened. A change replaces its page, so a
copy of the fold shares the pages: a copy of a hundred thousand sessions is a copy of some pointers.

It follows the rules of the manager's fold as far as a row needs them. An event does not count if
its epoch is older, or if its worker has lost the turn.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import takewhile
from sys import intern
from typing import Any, Self

from seamlessflow.infra.kafka.client import Received
from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Record
from seamlessflow.schemas.tokens import TOKEN_BYTES

OPEN = "open"
PAGE_ROWS = 32
_LONGEST = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRow:
    """A session in a list."""

    session_id: str
    partition: int
    offset: int
    """Place of the event that opened it."""
    policy: str
    purpose: str
    split: str
    task_id: str
    group_id: str
    sample: int
    attempt: int
    agent: str
    opened_ms: int
    last_ms: int
    status: str = OPEN
    """`open`, or the status with which it was closed."""
    reason: str = ""
    limit: str = ""
    turns: int = 0
    """Turns that were completed."""
    tokens: int = 0
    """Tokens sampled in them."""
    failed_turns: int = 0
    hand_overs: int = 0
    """Dispatches of its turns, without each turn's first."""
    versions: tuple[int, ...] = ()
    """Policy versions that sampled its tokens, in ascending order."""
    rewards: tuple[tuple[str, float], ...] = ()
    closed_ms: int | None = None
    finalized_ms: int | None = None

    @property
    def reward(self) -> float | None:
        """Value of the reward with the name `reward`, else of the first; None without any."""
        for name, value in self.rewards:
            if name == "reward":
                return value
        return self.rewards[0][1] if self.rewards else None


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnUnderWay:
    """A turn that has not ended."""

    turn_id: str
    session_id: str
    started_ms: int
    deadline_ms: int
    prompt_tokens: int
    sampled: int = 0
    worker: str = ""
    """Worker that samples it; empty while it waits for one."""
    slot: int = -1
    dispatch: int = 0
    since_ms: int = 0
    """Time of its last dispatch or hand-back."""


@dataclass
class SessionsFold:
    """The fold of one partition of `sessions`."""

    partition: int
    epoch: int = 0
    manager: str = ""
    claimed_ms: int = 0
    events: int = 0
    sessions: int = 0
    pages: list[tuple[SessionRow, ...]] = field(default_factory=list)
    open: dict[str, int] = field(default_factory=dict)
    """Row numbers of the sessions that are not finalized, by session id."""
    turns: dict[str, TurnUnderWay] = field(default_factory=dict)

    def copy(self) -> Self:
        """Return a copy that no later record changes."""
        copied: dict[str, Any] = {
            name: value.copy() if isinstance(value, dict | list) else value
            for name, value in vars(self).items()
        }
        return type(self)(**copied)

    def apply(self, item: Received) -> None:
        """Fold an event in."""
        record = item.record
        self.events += 1
        epoch = getattr(record, "epoch", None)
        if epoch is not None and epoch < self.epoch:
            return
        match record:
            case r.PartitionClaimed():
                self.epoch = record.epoch
                self.manager = record.manager
                self.claimed_ms = record.at_ms
            case r.SessionOpened():
                self._open(item, record)
            case _ if getattr(record, "session_id", None) in self.open:
                self._turn(record, item.timestamp_ms)
                self._session(record, item.timestamp_ms)

    def rows(self) -> Iterator[SessionRow]:
        """Yield the sessions, the newest first."""
        for page in reversed(self.pages):
            yield from reversed(page)

    def opened_since(self, at_ms: int) -> Iterator[SessionRow]:
        """Yield the sessions that opened at a time or later, the newest first."""
        return takewhile(lambda row: row.opened_ms >= at_ms, self.rows())

    def row(self, number: int) -> SessionRow:
        """Return a session by its number in opening order."""
        page, place = divmod(number, PAGE_ROWS)
        return self.pages[page][place]

    def _open(self, item: Received, record: r.SessionOpened) -> None:
        if record.session_id in self.open:
            return
        row = SessionRow(
            session_id=record.session_id,
            partition=self.partition,
            offset=item.offset,
            policy=intern(record.policy),
            purpose=intern(record.purpose),
            split=intern(record.split),
            task_id=intern(record.task_id),
            group_id=intern(record.group_id),
            sample=record.sample,
            attempt=record.attempt,
            agent=intern(record.agent),
            opened_ms=item.timestamp_ms,
            last_ms=item.timestamp_ms,
        )
        self.open[record.session_id] = self.sessions
        if self.sessions % PAGE_ROWS == 0:
            self.pages.append((row,))
        else:
            self.pages[-1] = (*self.pages[-1], row)
        self.sessions += 1

    def _session(self, record: Record, at_ms: int) -> None:
        session_id: str = record.session_id  # type: ignore[attr-defined] # `apply` has looked
        match record:
            case r.RewardAssigned() if not record.failure:
                reward = record.reward
                about = f"{reward.name} of {reward.turn_id}" if reward.turn_id else reward.name
                row = self.row(self.open[session_id])
                rewards = dict(row.rewards) | {about: reward.value}
                self._change(session_id, at_ms, rewards=_shared(tuple(rewards.items())))
            case r.SessionClosed():
                reason = next(reversed(record.reason.splitlines()), "")[:_LONGEST]
                closed: dict[str, Any] = {"status": record.status, "limit": record.limit}
                self._change(session_id, at_ms, closed_ms=at_ms, reason=reason, **closed)
                self._drop_turns(session_id)
            case r.SessionFinalized():
                self._change(session_id, at_ms, finalized_ms=at_ms)
                self._drop_turns(session_id)
                del self.open[session_id]

    def _turn(self, record: Record, at_ms: int) -> None:
        match record:
            case r.TurnStarted():
                self.turns[record.turn_id] = TurnUnderWay(
                    turn_id=record.turn_id,
                    session_id=record.session_id,
                    started_ms=at_ms,
                    since_ms=at_ms,
                    deadline_ms=record.deadline_ms,
                    prompt_tokens=record.prompt_length,
                )
            case r.TurnDispatched() if (turn := self.turns.get(record.turn_id)) is not None:
                self.turns[record.turn_id] = replace(
                    turn,
                    dispatch=record.dispatch,
                    worker=record.worker,
                    slot=record.slot,
                    since_ms=at_ms,
                )
                if turn.dispatch and turn.dispatch != record.dispatch:
                    row = self.row(self.open[record.session_id])
                    self._change(record.session_id, at_ms, hand_overs=row.hand_overs + 1)
            case r.TurnProgressed() | r.TurnInterrupted() | r.TurnCompleted():
                self._output(record, at_ms)
            case r.TurnFailed() | r.TurnCancelled() if record.turn_id in self.turns:
                turn = self.turns[record.turn_id]
                of_worker = isinstance(record, r.TurnFailed) and record.epoch is None
                if not of_worker or getattr(record, "dispatch", None) == turn.dispatch:
                    del self.turns[record.turn_id]
                    row = self.row(self.open[record.session_id])
                    self._change(record.session_id, at_ms, failed_turns=row.failed_turns + 1)

    def _output(
        self, record: r.TurnProgressed | r.TurnInterrupted | r.TurnCompleted, at_ms: int
    ) -> None:
        turn = self.turns.get(record.turn_id)
        if turn is None or (turn.worker, turn.dispatch) != (record.worker, record.dispatch):
            return
        sampled = record.token_offset + len(record.token_ids) // TOKEN_BYTES
        self._versions(record, at_ms)
        if isinstance(record, r.TurnCompleted):
            del self.turns[record.turn_id]
            row = self.row(self.open[record.session_id])
            counted = {"turns": row.turns + 1, "tokens": row.tokens + sampled}
            self._change(record.session_id, at_ms, **counted)
        elif isinstance(record, r.TurnInterrupted):
            self.turns[record.turn_id] = replace(
                turn, sampled=sampled, worker="", slot=-1, since_ms=at_ms
            )
        else:
            self.turns[record.turn_id] = replace(turn, sampled=sampled)

    def _versions(
        self, record: r.TurnProgressed | r.TurnInterrupted | r.TurnCompleted, at_ms: int
    ) -> None:
        before = self.row(self.open[record.session_id]).versions
        seen = {
            version
            for span in record.spans
            for version in range(span.version_min, span.version_max + 1)
        }
        if not seen <= set(before):
            versions = tuple(sorted(seen.union(before)))
            self._change(record.session_id, at_ms, versions=_shared(versions))

    def _drop_turns(self, session_id: str) -> None:
        for name in [t.turn_id for t in self.turns.values() if t.session_id == session_id]:
            del self.turns[name]

    def _change(self, session_id: str, at_ms: int, **changes: Any) -> None:
        page, place = divmod(self.open[session_id], PAGE_ROWS)
        rows = list(self.pages[page])
        rows[place] = replace(rows[place], last_ms=at_ms, **changes)
        self.pages[page] = tuple(rows)


@lru_cache(4_096)
def _shared(values: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the first object with these values: most sessions have the same as others."""
    return values
