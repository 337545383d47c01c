"""A worker's training process, and its devices, whose memory is taken or given back.

`TrainerRoles` decides the moves; the loop's thread carries them out.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypedDict

from seamlessflow.infra.worker.activity import Activity, ActivityAccount
from seamlessflow.infra.worker.roles import new_incarnation
from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Record
from seamlessflow.trainer.backends.backend import DeviceMemory
from seamlessflow.trainer.roles.parts import ProcessParts
from seamlessflow.trainer.roles.roles import TrainerRoles

_log = logging.getLogger(__name__)


if TYPE_CHECKING:
    from seamlessflow.infra.weights.from_trainer.sending import WeightsService


@dataclass(frozen=True, slots=True, kw_only=True)
class RankProcess(ProcessParts):
    """The process that speaks for all the worker's devices in the role `train`."""

    roles: TrainerRoles
    activity: ActivityAccount
    weights: WeightsService | None
    """Sends published weights to rollout processes; None if they take them elsewhere."""

    def fold(self, record: Record) -> None:
        """Fold a record of `control` or `fleet`."""
        self.roles.apply(record)
        self.gang.apply(record)

    def enter(self, state: str, activity: Activity) -> None:
        """Set what heartbeats and activity records report from now on."""
        self.status.state = state
        self.activity.enter(activity, self.now_ms())

    def note_computing(self, computes: bool) -> None:
        """Note that the first rank now computes its part of a step (True), or waits for others."""
        self.activity.enter("training" if computes else "waiting", self.now_ms())


class _RoleChange(TypedDict):
    at_ms: int
    worker: str
    incarnation: str
    role: str
    assignment: int
    took_ms: int


@dataclass(frozen=True, slots=True)
class TrainerDevice:
    """The worker's devices, whose memory moves when `TrainerRoles` finds a move due.

    Called by the loop's thread.
    """

    process: RankProcess
    memory: DeviceMemory

    def advance(self) -> None:
        """Collect finished work; begin the move that is due if no work is under way."""
        if not self.process.work.collect():
            return
        self.rest()
        match self.process.roles.due():
            case "acquire":
                move = self._begin_move()
                self.process.work.begin(self.memory.acquire, lambda _: self._acquired(*move))
            case "release":
                move = self._begin_move()
                self.process.work.begin(self.memory.release, lambda n: self._released(n, *move))
            case "rejoin":
                self.process.roles.rejoined(new_incarnation())
                self.process.heartbeat.send()

    def rest(self) -> None:
        """Set the state that the process has while it does nothing, with or without the role."""
        if self.process.roles.held is not None:
            self.process.enter("ready", "idle")
        else:
            self.process.enter("asleep", "none")

    def leave(self) -> None:
        """Give the role up because the process ends."""
        if self.process.roles.held is not None:
            began_ms, assignment = self._begin_move()
            self._released(self.memory.release(), began_ms, assignment)

    def _begin_move(self) -> tuple[int, int]:
        """Return the time and the assignment that the move began with."""
        began_ms = self.process.now_ms()
        self.process.activity.enter("loading", began_ms)
        return began_ms, self.process.roles.assignment

    def _acquired(self, began_ms: int, assignment: int) -> None:
        process = self.process
        wanted = self.process.roles.wanted
        # The assignment may have been replaced or timed out while the memory was being taken.
        if wanted is None or wanted.assignment != assignment:
            if process.roles.held is None:
                self.memory.release()
            return
        process.roles.acquired()
        change = self._change(began_ms, assignment)
        acquired = r.RoleAcquired(**change, version=process.status.version)
        _log.info("role train acquired in %d ms", acquired.took_ms)
        self._report(acquired)

    def _released(self, free_bytes: int, began_ms: int, assignment: int) -> None:
        self.process.roles.released()
        released = r.RoleReleased(**self._change(began_ms, assignment), free_bytes=free_bytes)
        _log.info("role train released in %d ms", released.took_ms)
        self._report(released)

    def _change(self, began_ms: int, assignment: int) -> _RoleChange:
        """Return the fields that both records share, for a role change that ends now."""
        roles = self.process.roles
        now_ms = self.process.now_ms()
        return {
            "at_ms": now_ms,
            "worker": roles.worker,
            "incarnation": roles.incarnation,
            "role": "train",
            "assignment": assignment,
            "took_ms": now_ms - began_ms,
        }

    def _report(self, record: r.RoleAcquired | r.RoleReleased) -> None:
        self.process.send(record)
        self.rest()
        self.process.heartbeat.send()
