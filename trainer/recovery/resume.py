"""A run's resumption: the step to begin with, the steps to execute again, the lineage.

Steps committed after the last checkpoint are executed again, with the same groups and sessions.
They get new version numbers and a new lineage. So every group is in exactly one step on the
surviving lineage. A lineage's record has all that is needed to execute its steps again, elsewhere
or later. Pure, except `other_model`, which compares the model with the run's.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from seamlessflow.infra.errors import SeamlessFlowError
from seamlessflow.infra.weights.from_trainer.questions import TOKENIZER
from seamlessflow.infra.weights.model_hub import HubModel
from seamlessflow.schemas.records import LineageStarted, StepCommitted, StepMethod
from seamlessflow.schemas.releases import releases
from seamlessflow.schemas.tokens import step_name
from seamlessflow.trainer.backends.backend import Machine
from seamlessflow.trainer.data.packing import Layout
from seamlessflow.trainer.data.reuse import UsedGroup
from seamlessflow.trainer.recovery.control_state import Commit, ControlState, SessionIds
from seamlessflow.trainer.settings import TrainerSettings
from seamlessflow.trainer.step_methods import differences

SECTIONS = ("run", "pacing", "policy", "trainer")
"""Settings sections that decide what a step computes."""
_FILE = "tokenizer.json"
ORIGIN = ".origin"
"""File beside a run's tokenizer: name and commit of the hub model that the run began with."""


class StepNotRecorded(SeamlessFlowError):
    """A step that `control` lacks after the checkpoint, so later steps cannot be repeated."""

    lasting = True

    def __init__(self, step: int, checkpoint_step: int) -> None:
        self.step = step
        self.checkpoint_step = checkpoint_step
        super().__init__(
            f"the checkpoint is of step {checkpoint_step}, control has no record of "
            f"{step_name(step)}: continue from a newer checkpoint or with another topic_prefix"
        )


class GroupsGone(SeamlessFlowError):
    """Groups that the whole recording lacks, although a step to execute again needs them."""

    lasting = True

    def __init__(self, step: int, groups: Sequence[str]) -> None:
        self.step = step
        self.groups = groups
        super().__init__(
            f"{step_name(step)} was trained on {len(groups)} groups that the recording lacks, such "
            f"as {groups[0]}: continue with the recording of before, or begin under another prefix"
        )


@dataclass(frozen=True, slots=True)
class Origin:
    """The origin of the weights in memory: a checkpoint, a step, or the initial model."""

    step: int = 0
    """Optimizer steps that made the weights, skipped ones included; also the next step's number."""
    version: int = 0
    lineage: str = ""
    skipped: int = 0
    """Steps among them that were skipped; a run's length counts the others."""

    @property
    def trained(self) -> int:
        """Return how many steps trained something."""
        return self.step - self.skipped


@dataclass(frozen=True, slots=True)
class Resume:
    """The way to go on after a start."""

    origin: Origin
    lineage: str
    """Lineage of all steps from here on."""
    next_version: int
    again: Mapping[int, Commit | None]
    """Recorded steps to execute again; None if the step was skipped."""
    settled: frozenset[str]
    """Groups that are over."""
    fixed: Mapping[str, SessionIds]
    """Sessions by group, for groups recorded as ready or trained."""
    reusable: Sequence[UsedGroup] = ()
    """Groups from earlier steps that may be trained again."""

    def reused_until(self) -> dict[str, int]:
        """Return each group that recorded steps trained again, with the last such step."""
        commits = (self.again[step] for step in sorted(self.again))
        return {
            name: commit.step for commit in commits if commit is not None for name in commit.reused
        }


def resume_from(
    control_state: ControlState,
    origin: Origin,
    lineage: str,
    reusable: Sequence[UsedGroup] = (),
) -> Resume:
    """Return the way to go on with the weights from `origin`. Raise `StepNotRecorded`."""
    recorded = control_state.commits.keys() | control_state.skipped
    last = max(recorded, default=-1)
    again: dict[int, Commit | None] = {}
    for step in range(origin.step, last + 1):
        if step not in recorded:
            raise StepNotRecorded(step, origin.step)
        again[step] = control_state.commits.get(step)
    before = [commit for step, commit in control_state.commits.items() if step < origin.step]
    settled = control_state.over | {name for commit in before for name in commit.groups}
    fixed = {
        name: sessions for name, sessions in control_state.ready.items() if name not in settled
    }
    for commit in again.values():
        fixed.update(commit.new_groups() if commit else {})
    next_version = max(control_state.highest_version, origin.version) + 1
    return Resume(origin, lineage, next_version, again, frozenset(settled), fixed, reusable)


def changes(resume: Resume, present: Sequence[StepMethod]) -> str:
    """Return a sentence about recorded steps that are executed again with other methods, if any.

    Such steps belong to the new lineage, whose record has the settings.
    """
    by_step = {
        step: differing
        for step, commit in resume.again.items()
        if commit and (differing := differences(commit.methods, present))
    }
    if not by_step:
        return ""
    first = min(by_step)
    return (
        f"{len(by_step)} recorded steps, from {step_name(first)} on, are executed again with other "
        f"methods than they were trained with, in the new lineage {resume.lineage}: "
        f"{'; '.join(by_step[first])}. To repeat them as they were, resume with the former settings"
    )


def layout_of_run(named: Layout, before: Layout, able: Layout) -> Layout:
    """Return the layout for all steps from here on.

    It is `able`, the layout that the gang chose for the setting `named`. But with `auto`, a run
    whose steps `before` were padded goes on with padded ones.
    """
    return before if named == "auto" and before == "padded" else able


def surviving(commits: Sequence[StepCommitted]) -> list[StepCommitted]:
    """Return the steps that made the newest weights, oldest first.

    `commits` are in log order. In each lineage only the steps before its child's first step
    survive, because the child began from a checkpoint before the other steps.
    """
    steps: list[StepCommitted] = []
    parents = {commit.lineage: commit.parent_lineage for commit in commits}
    lineage = commits[-1].lineage if commits else ""
    while lineage:
        first = steps[0].step if steps else None
        of_lineage = [commit for commit in commits if commit.lineage == lineage]
        steps = [commit for commit in of_lineage if first is None or commit.step < first] + steps
        lineage = parents.get(lineage, "")
    return steps


def recorded_sections(settings: TrainerSettings) -> Mapping[str, Any]:
    """Return the settings in `SECTIONS` as JSON values; none has a secret."""
    return settings.model_dump(mode="json", include=set(SECTIONS))


def lineage_started(
    settings: TrainerSettings, resume: Resume, machine: Machine, at_ms: int
) -> LineageStarted:
    """Return the record for `control` that announces the lineage."""
    return LineageStarted(
        at_ms=at_ms,
        policy=settings.run.policy,
        lineage=resume.lineage,
        parent_lineage=resume.origin.lineage,
        step=resume.origin.step,
        settings=orjson.dumps(recorded_sections(settings)),
        ranks=settings.trainer.ranks,
        threads=machine.threads,
        torch=machine.torch,
        device=machine.device,
        release=releases()[-1].version,
    )


def other_model(model: Path, weights_dir: Path) -> str:
    """Return why the run in `weights_dir` cannot go on with a model; empty if it can.

    The model must have the run's tokens. If both are the same hub model, it must also have the
    commit that the run began with.

    The check needs no log, so `train` and the trainer make it before they read the log, which may
    take long. Also empty for a run that has not begun, and for a model that is no longer there.
    """
    named = model / _FILE
    recorded = weights_dir / TOKENIZER / _FILE
    if text := _other_commit(HubModel.of_snapshot(model), weights_dir / TOKENIZER / ORIGIN):
        return text
    if not (named.is_file() and recorded.is_file()) or named.read_bytes() == recorded.read_bytes():
        return ""
    text = f"its {_FILE} is not that of this run, {recorded}, whose tokens would mean others"
    return f"{text}: name the model that the run began with, or begin another run (out)"


def _other_commit(model: HubModel | None, origin: Path) -> str:
    began = HubModel.named(origin.read_text(encoding="utf-8")) if origin.is_file() else None
    if model is None or began is None or model.name != began.name or model == began:
        return ""
    text = f"{model.name} is now the commit {model.revision}, and this run began with {began}"
    return f"{text}: write {began} to go on with it, or begin another run (out)"
