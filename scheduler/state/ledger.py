"""The ledger of groups: what was admitted and has not ended, and what each one is at.

A group is in it from `GroupAdmitted` until it ends, which it does once: trained on (its step's
weights are out) or dropped. Until then it holds a credit. An `eval` group holds none; it ends when
ready or expired. Kept by `scheduler/state/groups.py`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

EVAL = "eval"


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """The newest attempt at a sample that failed."""

    attempt: int
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """An admitted group that has not ended."""

    task_id: str
    purpose: str
    version: int
    admitted_ms: int
    deadline_ms: int
    ready: bool = False
    expired: bool = False
    trained_version: int | None = None
    """The version made from it; its credit returns when that version is published."""
    failures: Mapping[int, Failure] = field(default_factory=dict)
    """By sample."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """All groups that have not ended, and counts of those that have."""

    groups: Mapping[str, Group] = field(default_factory=dict)
    admitted: int = 0
    drawn: int = 0
    """Tasks taken from the task source; the other groups tried a task again."""
    again: tuple[str, ...] = ()
    """Tasks of groups dropped for reasons outside the policy, to be tried again."""
    tries: Mapping[str, int] = field(default_factory=dict)
    """How often such a task was dropped, until a group of it ends otherwise."""
    trained: int = 0
    dropped: int = 0
    dropped_in_step: int = 0
    """Since the last step ended; bounds how much is refilled."""
    moved_ms: int = 0
    """When a group last began, got ready or ended."""
    eval_version: int = -1
    eval_admitted: int = 0
    """Groups admitted to evaluate `eval_version`."""

    @property
    def training(self) -> Mapping[str, Group]:
        """The groups that hold credits."""
        return {name: of for name, of in self.groups.items() if of.purpose != EVAL}

    @property
    def running(self) -> int:
        """Groups for training that are not ready."""
        return sum(not group.ready for group in self.training.values())

    @property
    def ready(self) -> int:
        """Groups for training that are ready and in no committed step."""
        return sum(of.ready and of.trained_version is None for of in self.training.values())
