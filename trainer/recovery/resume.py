"""What a trainer does first after a restart: from which step, which recorded steps again.

Pure. Steps that were committed behind the last checkpoint are executed again, with the same groups
and sessions, under new version numbers and in a new lineage; so every group is in exactly one step
of the lineage that survives.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from infra.errors import SeamlessFlowError
from schemas.records import StepCommitted
from trainer.recovery.control_state import Commit, ControlState, Sessions


class StepNotRecorded(SeamlessFlowError):
    """`control` lacks a step behind the checkpoint, so that later ones cannot be executed again."""

    def __init__(self, step: int, checkpoint_step: int) -> None:
        self.step = step
        self.checkpoint_step = checkpoint_step
        super().__init__(
            f"the checkpoint is of step {checkpoint_step}, control has no record of step {step}: "
            "continue from a newer checkpoint or with another topic_prefix"
        )

    def __reduce__(self) -> tuple[type["StepNotRecorded"], tuple[int, int]]:
        return StepNotRecorded, (self.step, self.checkpoint_step)


@dataclass(frozen=True, slots=True)
class Origin:
    """Where the weights in memory come from: a checkpoint, or the initial model."""

    step: int = 0
    """Optimizer steps behind them, skipped ones included; the next step to do."""
    version: int = 0
    lineage: str = ""


@dataclass(frozen=True, slots=True)
class Resume:
    """How to go on."""

    origin: Origin
    lineage: str
    next_version: int
    again: Mapping[int, Commit | None]
    """Recorded steps to execute again; None: it was skipped."""
    settled: frozenset[str]
    """Groups that are over."""
    fixed: Mapping[str, Sessions]
    """Sessions of groups that were recorded as ready or trained."""


def resume_from(control_state: ControlState, origin: Origin, lineage: str) -> Resume:
    """The plan of a process that starts with the weights of `origin`. Raises `StepNotRecorded`."""
    recorded = control_state.commits.keys() | control_state.skipped
    last = max(recorded, default=-1)
    again: dict[int, Commit | None] = {}
    for step in range(origin.step, last + 1):
        if step not in recorded:
            raise StepNotRecorded(step, origin.step)
        again[step] = control_state.commits.get(step)
    before = [commit for step, commit in control_state.commits.items() if step < origin.step]
    settled = control_state.over | {name for commit in before for name in commit.groups}
    fixed = {name: of for name, of in control_state.ready.items() if name not in settled}
    for commit in again.values():
        fixed.update(commit.groups if commit else {})
    next_version = max(control_state.highest_version, origin.version) + 1
    return Resume(origin, lineage, next_version, again, frozenset(settled), fixed)


def surviving(commits: Sequence[StepCommitted]) -> list[StepCommitted]:
    """The steps that made the newest weights, oldest first; `commits` in the order of the log."""
    found: list[StepCommitted] = []
    parents = {one.lineage: one.parent_lineage for one in commits}
    lineage = commits[-1].lineage if commits else ""
    while lineage:
        first = found[0].step if found else None
        own = [one for one in commits if one.lineage == lineage]
        found = [one for one in own if first is None or one.step < first] + found
        lineage = parents.get(lineage, "")
    return found
