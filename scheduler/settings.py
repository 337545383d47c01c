"""Settings of the scheduler process. Importable without Kafka.

Also what the pure parts take as their parameters. Seconds are floats here, milliseconds everywhere
else: `milliseconds`.
"""

from pathlib import Path
from typing import Self

from pydantic import ConfigDict, Field, model_validator

from infra.settings import ProcessSettings, Section, SharedPacingSection, SharedRunSection


class RunSection(SharedRunSection):
    """The run: its policy, its length, its groups."""

    model_config = ConfigDict(extra="forbid")

    id: str = Field(
        "run",
        pattern=r"^[A-Za-z0-9_-]+$",
        description="Start of all group and session ids; a new run needs a new one",
    )
    group_size: int = Field(8, ge=1, description="Samples of a group")
    min_group_size: int = Field(
        2, ge=1, description="Samples with which a group is good enough at its deadline"
    )

    @model_validator(mode="after")
    def _group_sizes(self) -> Self:
        if self.min_group_size > self.group_size:
            raise ValueError("run.min_group_size must not exceed run.group_size")
        return self


class SchedulerSection(Section):
    """How roles are given to workers."""

    policy: str = Field(
        "multiplexed",
        description="colocated, disaggregated, multiplexed, or module:function of one's own "
        "(see scheduler/decisions/policies.py)",
    )
    gang_size: int | None = Field(
        None, ge=1, description="Workers that train together; none: all that can"
    )
    helpers: int = Field(
        0, ge=0, description="So many more may train where the predicted gain exceeds the switch"
    )
    min_dwell_s: float = Field(
        0.2, ge=0, description="Seconds a worker keeps a role before an optional move"
    )
    heartbeat_timeout_s: float = Field(
        10, gt=0, description="Seconds without a sign of life after which a process is lost"
    )
    assignment_timeout_s: float = Field(
        120, gt=0, description="Seconds in which rollout has to be taken, engine start included"
    )
    gang_timeout_s: float = Field(
        60, gt=0, description="Seconds in which all of a gang have to be ready to train"
    )
    stall_s: float = Field(
        300, gt=0, description="Seconds without progress after which an event says so"
    )
    standby_s: float = Field(
        0,
        ge=0,
        description="Wait until the present scheduler gave no sign for so many seconds (more than "
        "snapshot_s); 0: take over at once",
    )
    snapshot_s: float = Field(5, gt=0, description="Seconds between snapshots of the state")
    idle_warning: float = Field(
        0.05, ge=0, le=1, description="Predicted idle share of workers from which on to warn"
    )


class PacingSection(SharedPacingSection):
    """Tasks that are issued, and their deadlines."""

    model_config = ConfigDict(extra="forbid")

    tasks: Path | None = Field(
        None,
        description="Tasks, a JSON object a line with an id and anything else; none: sessions come "
        "from elsewhere and none are issued",
    )
    split: str = Field("train", description="Name of the task set in sessions and trajectories")
    seed: int = Field(0, description="Seed of the order of tasks, which differs in each epoch")
    shuffle: bool = Field(True, description="Whether tasks are drawn in random order")
    task_timeout_s: float = Field(600, gt=0, description="Seconds until an agent is stopped")
    task_grace_s: float = Field(
        30,
        ge=0,
        description="Seconds for the trajectory of a stopped agent to arrive before its sample is "
        "issued again",
    )
    group_timeout_s: float = Field(
        1800, gt=0, description="Seconds until a group is done with what it has"
    )
    max_attempts: int = Field(2, ge=1, description="Times a sample is tried")


class EvaluationSection(Section):
    """Tasks that only measure."""

    tasks: Path | None = Field(None, description="Tasks in the same form; none: no evaluation")
    split: str = Field("test", description="Name of the task set in sessions and trajectories")
    every: int = Field(10, ge=1, description="Optimizer steps from one evaluation to the next")
    samples: int = Field(1, ge=1, description="Samples of each task")
    pinned: bool = Field(
        False,
        description="Whether every token must come from the version that is measured; workers go "
        "on to newer ones, so only where one of them stays",
    )


class SchedulerSettings(ProcessSettings):
    """All settings of `python -m scheduler`."""

    run: RunSection = Field(default_factory=RunSection)
    scheduler: SchedulerSection = Field(default_factory=SchedulerSection)
    pacing: PacingSection = Field(default_factory=PacingSection)
    evaluation: EvaluationSection = Field(default_factory=EvaluationSection)


def milliseconds(seconds: float) -> int:
    """Seconds of a setting as whole milliseconds."""
    return round(1000 * seconds)
