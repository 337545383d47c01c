"""Faults to inject: a process, killed or frozen, at a moment that the log shows. Pure."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Record


class Kind(StrEnum):
    KILL = "kill -9"
    FREEZE = "SIGSTOP"


GATEWAY, MANAGER, WORKER, MOVING_WORKER = "gateway", "manager", "rollout-w0", "rollout-w1"
SCHEDULER, AGENTS, BROKER = "scheduler", "agents", "broker"
TRAINER, TRAINING = "trainer", "trainer-w1"

MOMENTS: dict[str, Sequence[type[Record]]] = {
    GATEWAY: (r.TurnStarted, r.TurnProgressed, r.SessionClosed),
    MANAGER: (r.TurnDispatched, r.TurnProgressed, r.SessionClosed, r.SessionFinalized),
    WORKER: (r.TurnProgressed,),
    SCHEDULER: (r.BatchReady, r.GroupAdmitted, r.RoleAssigned, r.StepCommitted),
    TRAINER: (r.BatchReady, r.StepStarted, r.StepCommitted, r.WeightsPublished),
    TRAINING: (r.StepStarted, r.StepCommitted),
    AGENTS: (r.SessionOpened, r.TurnProgressed, r.TurnCompleted),
    BROKER: (r.TurnProgressed, r.SessionClosed, r.StepCommitted, r.SessionFinalized),
}
"""Records after which a process is hit; a worker is hit in mid-stream, by its own record."""

OTHERS = {GATEWAY: f"{GATEWAY}-2", MANAGER: f"{MANAGER}-2", WORKER: MOVING_WORKER}
"""The second process of each kind that has two."""


@dataclass(frozen=True)
class Fault:
    """A fault: the process is hit after the `count`-th record of a type from now on."""

    process: str
    kind: Kind
    moment: type[Record]
    count: int

    def __str__(self) -> str:
        return f"{self.kind} {self.process} after {self.moment.__name__} number {self.count}"

    @property
    def what(self) -> str:
        """Kind of fault and of process."""
        process = next(
            (name for name, other in OTHERS.items() if other == self.process), self.process
        )
        return f"{self.kind} {process}"

    @property
    def worker(self) -> str | None:
        """Id of the worker whose process this is; None for any other process."""
        family, _, worker = self.process.partition("-")
        return worker if worker and family in ("rollout", "trainer") else None


def fault(rng: random.Random, name: str, kind: Kind) -> Fault:
    """Draw one of the processes of a kind, and the moment."""
    process = rng.choice([name, OTHERS[name]]) if name in OTHERS else name
    return Fault(process, kind, rng.choice(MOMENTS[name]), rng.randint(1, 3))


def one_of_each(rng: random.Random) -> list[Fault]:
    """Return a kill and a freeze of each kind of process, in random order."""
    drawn = [fault(rng, name, kind) for name in MOMENTS for kind in Kind]
    rng.shuffle(drawn)
    return drawn


def pair(rng: random.Random) -> tuple[Fault, Fault]:
    """Return faults of two kinds of processes, the second while the first lasts."""
    first, second = rng.sample(list(MOMENTS), 2)
    return fault(rng, first, rng.choice(list(Kind))), fault(rng, second, rng.choice(list(Kind)))
