"""Random logs of one partition, each with the state that the oracle computes for it."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Record
from tests.builders.records import sessions
from tests.builders.trajectories.oracle import ExpectedSession
from tests.builders.trajectories.random_events import (
    ON_SESSIONS,
    ON_TURNS,
    OUTPUTS,
    RIGHT,
    SESSIONS,
    Step,
    dispatch,
)


@dataclass
class PartitionLog:
    """A log so far, and the oracle's state after it."""

    log: list[Record] = field(default_factory=list)
    accepted: list[bool] = field(default_factory=list)
    sessions: dict[str, ExpectedSession] = field(default_factory=dict)
    """Those not finalized."""
    finalized: list[ExpectedSession] = field(default_factory=list)
    epoch: int = 1

    def __post_init__(self) -> None:
        self._numbers = count(1)
        self.accepted.append(True)
        self.log.append(sessions.claimed())

    def happen(self, step: Step) -> None:
        """Append the event that the step means now, if any."""
        if step.action == "claim":
            return self.claim(step)
        session = self.sessions.get(self._name(step))
        if session is None:
            return self.write(self._about(step, sessions.opened()), step)
        turns = [turn for turn in session.turns if not turn.end] or session.turns
        if step.action in ON_SESSIONS:
            self.write(
                self._about(step, ON_SESSIONS[step.action](self._numbers, session, step)), step
            )
        elif turns:
            turn = turns[step.which // SESSIONS % len(turns)]
            waits = turn.sampler is None and step.fault == RIGHT and step.action in OUTPUTS
            make = dispatch if waits else ON_TURNS[step.action]
            self.write(self._about(step, make(self._numbers, session, turn, step)), step)

    def finish(self) -> None:
        """End every session."""
        for session_id in list(self.sessions):
            self.append(sessions.closed(session_id=session_id, epoch=self.epoch))
            self.append(sessions.finalized(session_id=session_id, epoch=self.epoch))

    def claim(self, step: Step) -> None:
        """Append the claim of another manager, of a newer epoch or of a stale one."""
        epoch = self.epoch + (step.fault == RIGHT)
        self.append(sessions.claimed(epoch, "other"))

    def write(self, event: Record, step: Step) -> None:
        """Append the event; the fault `twice` appends it again."""
        for _ in range(1 + (step.fault == "twice")):
            self.append(event)

    def append(self, event: Record) -> None:
        """Append the event and apply it to the oracle's state."""
        self.accepted.append(self._take(event, len(self.log)))
        self.log.append(event)

    def _name(self, step: Step) -> str:
        """Return the session of a step; an id is never used again."""
        slot = f"s{step.which % SESSIONS}."
        return slot + str(
            sum(session.opened.session_id.startswith(slot) for session in self.finalized)
        )

    def _about(self, step: Step, event: Any) -> Record:
        more: dict[str, Any] = {"session_id": self._name(step)}
        if getattr(event, "epoch", None) is not None:
            more["epoch"] = self.epoch - (step.fault == "epoch")
        if getattr(event, "command_id", None) is not None:
            more["command_id"] = f"c{next(self._numbers)}"
        return replace(event, **more)  # type: ignore[no-any-return]

    def _take(self, event: Any, offset: int) -> bool:
        if isinstance(event, r.PartitionClaimed):
            newer = event.epoch > self.epoch
            self.epoch = max(self.epoch, event.epoch)
            return newer
        if getattr(event, "epoch", None) is not None and event.epoch < self.epoch:
            return False
        session = self.sessions.get(event.session_id)
        if session is None:
            if opens := isinstance(event, r.SessionOpened):
                self.sessions[event.session_id] = ExpectedSession(event, offset)
            return opens or isinstance(event, r.CommandRefused)
        counts = session.take(event, offset)
        if session.finalized:
            self.finalized.append(self.sessions.pop(event.session_id))
        return counts


def log_of(steps: Sequence[Step], finish: bool = True) -> PartitionLog:
    """Return the log that the steps lead to."""
    history = PartitionLog()
    for step in steps:
        history.happen(step)
    if finish:
        history.finish()
    return history
