"""Settings for the scheduler process and its pure parts. Importable without Kafka.

Times are seconds (floats) here and whole milliseconds everywhere else: `milliseconds` converts.
"""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Annotated, NamedTuple, Self

from pydantic import ConfigDict, Field, JsonValue, StringConstraints, model_validator

from seamlessflow.infra.settings import (
    PassSection,
    ProcessSettings,
    SamplingSection,
    Section,
    SharedEvaluationSection,
    SharedPacingSection,
    SharedRunSection,
)
from seamlessflow.infra.user_functions import UserFunctionName, refuse_unnamed
from seamlessflow.infra.worker.judged_rewards import SharedRewardsSection
from seamlessflow.scheduler.sampling.settings import LiveForks, SamplerSection, TermsSection
from seamlessflow.scheduler.tasks.prepared.settings import TaskDataSection

SetName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]+$")]
"""Name of a task set among several: the split in its sessions, and a part of metric names."""

_CHOOSES = "map, where and held_back are those of"
_LEAST_SAMPLES = 2
"""Least samples for a trained group: a single sample has nothing to compare with."""


class RunSection(SharedRunSection):
    """The run: its policy, its length, its groups."""

    model_config = ConfigDict(extra="forbid")

    id: str = Field(
        "run",
        pattern=r"^[A-Za-z0-9_-]+$",
        description="Beginning of all group and session ids; a new run needs a new one",
    )
    group_size: int = Field(8, ge=1, description="Samples in a group")
    min_group_size: int | None = Field(
        None,
        ge=1,
        description="Least samples with which a group is trained at its deadline; none: 2, or 1 if "
        "groups have one sample",
    )
    turn_limit: int = Field(
        0,
        ge=0,
        lt=2**31,
        description="Turns that a session may have; later ones are refused; 0: as many as fit its "
        "context",
    )

    @model_validator(mode="after")
    def _group_sizes(self) -> Self:
        if self.min_group_size is not None and self.min_group_size > self.group_size:
            raise ValueError(
                f"run.min_group_size must not exceed run.group_size, which is {self.group_size}: "
                "leave it out, or set a larger group_size"
            )
        return self

    @property
    def least_samples(self) -> int:
        """Return `min_group_size` or its default; a smaller group needs all its samples."""
        return _LEAST_SAMPLES if self.min_group_size is None else self.min_group_size


class SchedulerSection(Section):
    """The assignment of roles to workers."""

    policy: str = Field(
        "multiplexed",
        description="Strategy that gives roles: colocated, disaggregated, multiplexed, "
        "bidirectional, adaptive, or your own module:function (docs/scheduling/strategies.md)",
    )
    functions: dict[UserFunctionName, dict[str, JsonValue]] = Field(
        {}, description="Settings for your own strategy: its keyword arguments, by module:function"
    )
    gang_size: int | None = Field(
        None,
        ge=1,
        description="Devices that train together; none: all that can. bidirectional and adaptive "
        "take it as the least number, and take more if that pays; none there: one worker",
    )
    helpers: int = Field(
        0,
        ge=0,
        description="Further devices that may train, if that is predicted to save more time than "
        "switching them costs",
    )
    min_dwell_s: float = Field(
        0.2, ge=0, description="Seconds that a worker keeps a role before an optional move"
    )
    heartbeat_timeout_s: float = Field(
        10, gt=0, description="Seconds without a heartbeat after which a process counts as lost"
    )
    assignment_timeout_s: float = Field(
        120,
        gt=0,
        description="Seconds that a worker has to acquire rollout, including the engine's start",
    )
    gang_timeout_s: float = Field(
        60, gt=0, description="Seconds until all workers in a gang must have acquired training"
    )
    stall_s: float = Field(
        300, gt=0, description="Seconds without progress after which ProgressStalled is written"
    )
    unread_s: float = Field(
        30,
        gt=0,
        description="Seconds that a topic's records may wait unread until ProgressStalled is "
        "written; for `tasks` with agents, an episode's time is added",
    )
    manager_group: str = Field(
        "trajectory-managers",
        description="The managers' Kafka consumer group (manager.group), whose lag is watched",
    )
    agents_group: str = Field(
        "agents",
        description="The agents' Kafka consumer group (agents.group), whose lag is watched",
    )
    standby_s: float = Field(
        0,
        ge=0,
        description="Seconds without a record from the present scheduler after which this one "
        "takes over (more than snapshot_s); 0: take over at once",
    )
    snapshot_s: float = Field(5, gt=0, description="Seconds between two snapshots of the state")
    balance_s: float = Field(
        30,
        gt=0,
        description="Least seconds that a worker with the tag shared serves a policy. Then it may "
        "move to a policy whose queued turns need it more",
    )
    idle_warning: float = Field(
        0.05,
        ge=0,
        le=1,
        description="Predicted idle share of the devices at which PlanWarning is written",
    )


Weight = Annotated[float, Field(gt=0, allow_inf_nan=False)]
StageWeight = Annotated[float, Field(ge=0, allow_inf_nan=False)]
"""Weight from a trained step on; a source may rest for a while."""


class SourceSection(TaskDataSection):
    """One of several task sets that are trained on together."""

    tasks: Path = Field(
        description="File of tasks, in a form that pacing.tasks takes; no other source may have "
        "the same ids"
    )
    weight: Weight | Annotated[list[tuple[int, StageWeight]], Field(min_length=1)] = Field(
        1,
        description="Weight of this source's groups relative to the other sources; or a list of "
        "[trained step, weight], each valid from that step on",
    )

    @model_validator(mode="after")
    def _ascending(self) -> Self:
        steps = [step for step, _ in self.weights]
        if steps != sorted(set(steps)) or steps[0] < 0:
            raise ValueError("weight must have ascending trained steps, 0 or more")
        return self

    @property
    def weights(self) -> Sequence[tuple[int, float]]:
        """Weights with the trained steps from which they hold; before the first step it is 0."""
        return self.weight if isinstance(self.weight, list) else [(0, self.weight)]


class PacingSection(TaskDataSection, SharedPacingSection):
    """The tasks to issue, and their deadlines."""

    model_config = ConfigDict(extra="forbid")

    tasks: Path | None = Field(
        None,
        description="Tasks: a file with JSON lines or a JSON list, CSV, Parquet, a pattern for "
        "several files (*), or a directory from the library datasets; a path or a URL; none: no "
        "tasks are issued, and sessions come from elsewhere",
    )
    sources: Mapping[SetName, SourceSection] = Field(
        default_factory=dict,
        description="Several task files by name, instead of tasks; sessions carry the name as "
        "their split. They are mixed by weight, each with its own passes and order",
    )
    split: str = Field(
        "train",
        description="The task set's name in sessions and trajectories; with sources, only the "
        "forks' name",
    )
    seed: int = Field(
        0, description="Seed for the task order, which differs in each pass over the tasks"
    )
    shuffle: bool = Field(True, description="Draw tasks in random order")
    sampler: SamplerSection = Field(default_factory=SamplerSection)
    terms: TermsSection = Field(default_factory=TermsSection)
    functions: dict[UserFunctionName, dict[str, JsonValue]] = Field(
        {},
        description="Settings for your own sampler or terms: their keyword arguments, by "
        "module:function",
    )
    forks: Path | None = Field(
        None,
        description="File with forked sessions, as `seamlessflow replay fork` writes it. Its "
        "groups begin in the middle of a recorded session",
    )
    fork_share: float = Field(
        0.5,
        ge=0,
        le=1,
        description="Share of drawn groups that come from forks, spread evenly; 1 if there are no "
        "other tasks",
    )
    forks_live: float = Field(
        0,
        ge=0,
        lt=1,
        description="Largest share of samples that go on from this run's ended sessions, at turns "
        "where the outcome may change (docs/scheduling/live-forks.md). The agent must declare "
        "agents.forks; 0: none",
    )
    forks_predict: UserFunctionName | None = Field(
        None,
        description="forks_live: module:function that returns the chance to pass for a session "
        "that goes on from a turn; none: the task's pass rate",
    )
    task_timeout_s: float = Field(600, gt=0, description="Seconds after which an agent is stopped")
    task_grace_s: float = Field(
        30,
        ge=0,
        description="Seconds to wait for a stopped agent's trajectory before its sample is issued "
        "again",
    )
    group_timeout_s: float = Field(
        1800, gt=0, description="Seconds after which a group ends with the samples it has"
    )

    def weights_at(self, step: int) -> Sequence[float]:
        """Return each source's weight at a trained step, ordered by source name."""
        return [
            next((weight for first, weight in reversed(section.weights) if first <= step), 0.0)
            for _, section in sorted(self.sources.items())
        ]

    @property
    def stages(self) -> Sequence[int]:
        """Trained steps at which the weights change, the first one 0."""
        steps = {step for section in self.sources.values() for step, _ in section.weights}
        return sorted({0, *steps})

    @property
    def issues(self) -> bool:
        """True if the scheduler issues training tasks."""
        return bool(self.sources) or self.tasks is not None or self.forks is not None

    @property
    def live_forks(self) -> LiveForks:
        """The settings for forks during the run."""
        return LiveForks(Fraction(str(self.forks_live)), self.forks_predict)

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        named = (
            self.sampler.name,
            self.sampler.predict,
            self.terms.name,
            self.forks_predict,
        )
        names = [name for name in named if name is not None]
        refuse_unnamed(self.functions, names, "sampler or terms")
        if self.forks_predict is not None and not self.forks_live:
            raise ValueError("only forks_live reads forks_predict, and it is 0")
        if self.sources and not any(self.weights_at(0)):
            raise ValueError("pacing.sources: no source has a weight at step 0")
        if self.sources and self.tasks is not None:
            raise ValueError("pacing.tasks and pacing.sources exclude each other: name one of them")
        if self.chooses and self.tasks is None:
            raise ValueError(f"pacing: {_CHOOSES} pacing.tasks: name them in each source")
        if self.forks is not None and self.split in self.sources:
            raise ValueError(
                f"pacing.sources: {self.split!r} is pacing.split, the name of pacing.forks"
            )
        return self


class EvaluationSetSection(TaskDataSection, PassSection):
    """One of several evaluation sets; its unset fields are as in the section `evaluation`."""

    model_config = ConfigDict(extra="forbid")

    tasks: Path = Field(description="File of tasks, in a form that pacing.tasks takes")
    every: int | None = Field(
        None, ge=1, description="Trained optimizer steps between its rounds; none: evaluation.every"
    )
    samples: int | None = Field(
        None, ge=1, description="Samples for each task; none: as evaluation.samples"
    )
    pinned: bool | None = Field(None, description="Like evaluation.pinned, for this set")
    sampling: SamplingSection | None = Field(
        None, description="Like evaluation.sampling, for this set; it replaces that whole section"
    )


class EvaluationTerms(NamedTuple):
    """One set's settings with these names."""

    every: int
    samples: int
    pinned: bool
    sampling: SamplingSection


class EvaluationSection(TaskDataSection, SharedEvaluationSection):
    """The tasks that only evaluate."""

    model_config = ConfigDict(extra="forbid")

    sets: Mapping[SetName, EvaluationSetSection] = Field(
        default_factory=dict,
        description="Several evaluation sets by name, instead of tasks; sessions carry the name as "
        "their split. Each has its own rounds",
    )
    every: int = Field(
        10,
        ge=1,
        description="Trained optimizer steps between two evaluations; the first and last weights "
        "are always evaluated",
    )
    samples: int = Field(1, ge=1, description="Samples for each task")
    pinned: bool = Field(
        False,
        description="Require that every token comes from the evaluated version. Other workers load "
        "newer versions, so this needs a worker that keeps it",
    )
    sampling: SamplingSection = Field(
        default_factory=SamplingSection,
        description="How these sessions are sampled, whatever their agent asks for",
    )

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        if self.sets and self.tasks is not None:
            raise ValueError(
                "evaluation.tasks and evaluation.sets exclude each other: name one of them"
            )
        if self.chooses and self.tasks is None:
            raise ValueError(f"evaluation: {_CHOOSES} evaluation.tasks: name them in each set")
        return self

    @model_validator(mode="after")
    def _enough_samples(self) -> Self:
        for split in self.sets or (self.split,):
            samples = self.terms(split).samples
            if any(k > samples for k in self.passing(split)[1]):
                name = f"evaluation.sets.{split}" if split in self.sets else "evaluation"
                raise ValueError(f"{name}: k is more than its samples, {samples}")
        return self

    @property
    def files(self) -> Mapping[str, Path]:
        """Task files by set name; a single file has the name `split`."""
        several = {name: task_set.tasks for name, task_set in self.sets.items()}
        return several or ({} if self.tasks is None else {self.split: self.tasks})

    def terms(self, split: str) -> EvaluationTerms:
        """Return a set's settings."""
        section = self.sets.get(split)
        all_sets = EvaluationTerms(self.every, self.samples, self.pinned, self.sampling)
        if section is None:
            return all_sets
        values = (section.every, section.samples, section.pinned, section.sampling)
        chosen = (b if a is None else a for a, b in zip(values, all_sets, strict=True))
        return EvaluationTerms(*chosen)  # type: ignore[arg-type]


class SchedulerSettings(ProcessSettings):
    """All settings of `python -m seamlessflow.scheduler`."""

    run: RunSection = Field(default_factory=RunSection)
    scheduler: SchedulerSection = Field(default_factory=SchedulerSection)
    pacing: PacingSection = Field(default_factory=PacingSection)
    evaluation: EvaluationSection = Field(default_factory=EvaluationSection)
    rewards: SharedRewardsSection = Field(default_factory=SharedRewardsSection)


def milliseconds(seconds: float) -> int:
    """Return a setting's seconds as whole milliseconds."""
    return round(1000 * seconds)
