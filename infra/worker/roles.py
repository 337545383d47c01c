"""Rule for the assignments that a worker's process obeys, for rollout and training alike. Pure."""

import uuid
from dataclasses import dataclass
from typing import Final

from seamlessflow.schemas.records import RoleAssigned

ENDED: Final = "ended"
"""State in the last heartbeat of a process that ends in order, and the reason of its loss."""


@dataclass(slots=True)
class WorkerRoles:
    """Role of a worker's process, as far as both kinds of process have it.

    A process obeys only assignments that are newer than the last one it obeyed, by scheduler epoch
    and number. It never obeys a scheduler older than the newest one it has read about.
    """

    worker: str
    incarnation: str
    epoch: int = -1
    """Newest scheduler read of."""
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
        """Newest assignment obeyed, -1 at first."""
        return self.obeyed[1]

    def is_newer(self, record: RoleAssigned) -> bool:
        """Return whether the assignment is one to obey."""
        return record.epoch >= self.epoch and (record.epoch, record.assignment) > self.obeyed

    def obey(self, record: RoleAssigned) -> None:
        """Remember the assignment as the newest one obeyed."""
        self.epoch = record.epoch
        self.obeyed = (record.epoch, record.assignment)


def new_incarnation() -> str:
    """Return the name of one life of a process, which no other life has."""
    return uuid.uuid4().hex[:12]
