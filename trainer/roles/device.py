"""The device changes hands: memory is taken or given back, then `control` is told."""

import logging
import uuid
from collections.abc import Callable
from dataclasses import dataclass

from infra.kafka.producer import Producer
from schemas import records as r
from schemas.topics import CONTROL
from trainer.backends.backend import Backend
from trainer.roles.heartbeat import Heartbeat, Vitals
from trainer.roles.roles import TrainerRoles
from trainer.roles.usage import Usage
from trainer.work import Work

_log = logging.getLogger(__name__)


def new_incarnation() -> str:
    """Name of a process, new at each start."""
    return uuid.uuid4().hex[:16]


@dataclass(slots=True)
class TrainerDevice:
    """Does what `Roles` says is due. Called by the loop while no other work is under way."""

    roles: TrainerRoles
    backend: Backend
    work: Work
    producer: Producer
    heartbeat: Heartbeat
    vitals: Vitals
    usage: Usage
    now_ms: Callable[[], int]

    def advance(self) -> None:
        """Begins what is due."""
        match self.roles.due():
            case "acquire":
                began_ms, assignment = self._begin_move()
                self.work.begin(
                    self.backend.acquire, lambda _: self._acquired(began_ms, assignment)
                )
            case "release":
                began_ms, assignment = self._begin_move()
                self.work.begin(
                    self.backend.release, lambda free: self._released(free, began_ms, assignment)
                )
            case "rejoin":
                self.roles.rejoined(new_incarnation())
                self.heartbeat.beat()

    def rest(self) -> None:
        """Says what this process is while it does nothing."""
        held = self.roles.held is not None
        self.vitals.state = "ready" if held else "asleep"
        self.usage.now("idle" if held else "none", self.now_ms())

    def leave(self) -> None:
        """Gives the role up because the process ends."""
        if self.roles.held is not None:
            began_ms, assignment = self._begin_move()
            self._released(self.backend.release(), began_ms, assignment)

    def _begin_move(self) -> tuple[int, int]:
        began_ms = self.now_ms()
        self.usage.now("loading", began_ms)
        return began_ms, self.roles.assignment

    def _acquired(self, began_ms: int, assignment: int) -> None:
        wanted = self.roles.wanted
        if wanted is None or wanted.assignment != assignment:
            if self.roles.held is None:
                self.backend.release()
            return
        self.roles.acquired()
        acquired = r.RoleAcquired(
            at_ms=self.now_ms(),
            worker=self.roles.worker,
            incarnation=self.roles.incarnation,
            role="train",
            assignment=assignment,
            version=self.vitals.version,
            took_ms=self.now_ms() - began_ms,
        )
        _log.info("role train acquired in %d ms", acquired.took_ms)
        self._report(acquired)

    def _released(self, free_bytes: int, began_ms: int, assignment: int) -> None:
        self.roles.released()
        released = r.RoleReleased(
            at_ms=self.now_ms(),
            worker=self.roles.worker,
            incarnation=self.roles.incarnation,
            role="train",
            assignment=assignment,
            free_bytes=free_bytes,
            took_ms=self.now_ms() - began_ms,
        )
        _log.info("role train released in %d ms", released.took_ms)
        self._report(released)

    def _report(self, record: r.RoleAcquired | r.RoleReleased) -> None:
        self.producer.send(CONTROL.name, record)
        self.rest()
        self.heartbeat.beat()
