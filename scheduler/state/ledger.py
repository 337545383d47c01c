"""The ledger of groups: the admitted groups that have not ended, and the state of each.

A group is in the ledger from `GroupAdmitted` until it ends. It ends once: trained (the weights of
its step are published) or dropped. Until then it holds a credit. An `eval` group holds none; it
ends when it is ready or expired. Kept by `scheduler/state/groups.py`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

EVAL = "eval"


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedAttempt:
    """The newest failed attempt at a sample."""

    attempt: int
    at_ms: int
    final: bool = False
    """True if the settings leave the sample out, so that it is not tried again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmittedGroup:
    """An admitted group that has not ended."""

    task_id: str
    purpose: str
    split: str = ""
    """Name of the task set that its task is of; empty: not recorded."""
    version: int
    admitted_ms: int
    deadline_ms: int
    size: int = 0
    """Samples that it asks for; 0: not recorded, so those of its task or of the settings."""
    min_size: int = 0
    """Samples with which it may be trained at its deadline; 0: not recorded."""
    turn_limit: int = 0
    """Turns of each of its sessions; 0: no limit."""
    ready: bool = False
    expired: bool = False
    trained_version: int | None = None
    """Version that was trained from it; its credit returns when that version is published."""
    failures: Mapping[int, FailedAttempt] = field(default_factory=dict)
    """By sample."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """All groups that have not ended, and counts of those that have ended."""

    groups: Mapping[str, AdmittedGroup] = field(default_factory=dict)
    admitted: int = 0
    drawn: int = 0
    """Number of tasks drawn from the task source; the other groups tried a task again."""
    again: tuple[str, ...] = ()
    """Tasks of groups that failed, to be tried again."""
    tries: Mapping[str, int] = field(default_factory=dict)
    """Number of drops in a row of such a task."""
    trained: int = 0
    dropped: int = 0
    dropped_in_step: int = 0
    """Groups dropped since the last step ended; bounds how many are replaced."""
    moved_ms: int = 0
    """Time at which a group was last admitted, got ready or ended."""
    eval_version: int = -1
    eval_admitted: Mapping[str, int] = field(default_factory=dict)
    """Number of groups admitted to evaluate `eval_version`, by split."""

    @property
    def training(self) -> Mapping[str, AdmittedGroup]:
        """Groups for training: those that hold credits."""
        return {name: group for name, group in self.groups.items() if group.purpose != EVAL}

    @property
    def running(self) -> int:
        """Number of groups for training that are not ready."""
        return sum(not group.ready and group.purpose != EVAL for group in self.groups.values())

    @property
    def evaluating(self) -> int:
        """Number of groups for evaluation that have not ended."""
        return sum(group.purpose == EVAL for group in self.groups.values())

    @property
    def ready(self) -> int:
        """Number of groups for training that are ready and in no committed step."""
        return sum(
            group.ready and group.trained_version is None and group.purpose != EVAL
            for group in self.groups.values()
        )
