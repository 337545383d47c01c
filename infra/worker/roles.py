"""Records on `fleet` that a worker's processes read, and their rule for assignments. Pure.

The rule is the same for rollout and training. Each of a thousand workers sends two heartbeats a
second, so other workers' heartbeats are not even decoded. Training processes' heartbeats say from
where published weights are sent.
"""

import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from seamlessflow.schemas.records import Record, RoleAssigned, WorkerHeartbeat

ENDED: Final = "ended"
"""State in the last heartbeat of a process that ends normally, and the reason of its loss."""


@dataclass(slots=True)
class WorkerRoles:
    """The role of a worker's process: the part that rollout and training share.

    A process obeys only assignments that are newer than the last one it obeyed, by scheduler epoch
    and number. It never obeys a scheduler older than the newest one it has read about.
    """

    worker: str
    incarnation: str
    epoch: int = -1
    """Newest scheduler epoch that was read."""
    obeyed: tuple[int, int] = (-1, -1)
    """Newest (epoch, assignment) obeyed."""
    wanted: RoleAssigned | None = None
    """The assignment that the process moves towards."""
    held: RoleAssigned | None = None
    """The assignment whose role the process has."""
    leaving: bool = False
    """True if the role must be given up."""
    lost: bool = False
    """True if the scheduler counts this incarnation as lost."""

    @property
    def assignment(self) -> int:
        """Newest obeyed assignment, or -1 at first."""
        return self.obeyed[1]

    def is_newer(self, record: RoleAssigned) -> bool:
        """Return whether the assignment must be obeyed."""
        return record.epoch >= self.epoch and (record.epoch, record.assignment) > self.obeyed

    def obey(self, record: RoleAssigned) -> None:
        """Remember the assignment as the newest one obeyed."""
        self.epoch = record.epoch
        self.obeyed = (record.epoch, record.assignment)


def new_incarnation() -> str:
    """Return a name for one life of a process; no other life has it."""
    return uuid.uuid4().hex[:12]


PROCESS = "train"

_OF_WORKERS = (b"WorkerHeartbeat/", b"WorkerAssignment/")
_OF_OTHERS = (b"GatewayHeartbeat/", b"ManagerStarted/")


def of_worker(worker: str) -> Callable[[bytes], bool]:
    """Return a function that says if the worker's processes read a record with this key."""
    beats = f"WorkerHeartbeat/{worker}/".encode()
    assignment = f"WorkerAssignment/{worker}".encode()

    def wanted(key: bytes) -> bool:
        if key.startswith(_OF_WORKERS):
            return key.startswith(beats) or key == assignment
        return not key.startswith(_OF_OTHERS)

    return wanted


def is_training_beat(key: bytes) -> bool:
    """Return whether a record of `fleet` with this key is a training process's heartbeat."""
    return key.startswith(b"WorkerHeartbeat/") and key.endswith(f"/{PROCESS}".encode())


@dataclass(eq=False)
class Senders:
    """Addresses that send weights, by worker. Two threads may call `apply` and `addresses`."""

    _known: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Policy and address by worker."""

    def apply(self, record: Record) -> None:
        """Fold a record in; only training processes' heartbeats count."""
        if not isinstance(record, WorkerHeartbeat) or record.process != PROCESS:
            return
        if record.weights_address and record.state not in (ENDED, "failed"):
            self._known[record.worker] = record.policy, record.weights_address
        else:
            self._known.pop(record.worker, None)

    def addresses(self, policy: str) -> list[str]:
        """Return the addresses, host:port, that train the policy, ordered by worker.

        A process that was killed is among them until another takes its place.
        """
        senders = sorted(self._known.copy().items())
        return [address for _, (trained, address) in senders if trained == policy]
