"""Settings of judges and reward workers: the section `rewards`. Importable without Kafka."""

import re
from typing import Self

from pydantic import ConfigDict, Field, field_validator, model_validator

from seamlessflow.infra.settings import ProcessSettings, Section
from seamlessflow.infra.worker.judged_rewards import SharedRewardsSection

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


class JudgeSection(Section):
    """A judge: what it runs, and how long and how often."""

    callable: str = Field(
        "",
        description="Judge as a Python callable, module:function, called with the session (see "
        "recorded/judging/judged_session.py). Exactly one of callable and command is set",
    )
    command: tuple[str, ...] = Field(
        (),
        description="Judge as a command line, a JSON list. It reads the session as JSON from "
        "standard input. The last line of its output is the reward",
    )
    timeout_s: float = Field(60, gt=0, description="Seconds that one try may take")
    concurrency: int = Field(
        8, ge=1, description="Most tries of this judge at the same time in one reward worker"
    )
    retries: int = Field(
        2,
        ge=0,
        description="Further tries behind an error, a time-out, or an answer that is no reward. "
        "Tries that met an outage do not count",
    )

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if bool(self.callable) == bool(self.command):
            raise ValueError("exactly one of callable and command must be set")
        return self


class RewardsSection(SharedRewardsSection):
    """Judges of a run, and the processes that run them."""

    model_config = ConfigDict(extra="forbid")

    judges: dict[str, JudgeSection] = Field(
        default_factory=dict,
        description="Judges by the names of their rewards, which trainer.rewards weighs",
    )
    workers: int = Field(1, ge=1, description="Reward worker processes that share the sessions")
    group: str = Field(
        "reward-workers", description="Kafka consumer group that shares the partitions of sessions"
    )
    tasks_mb: float = Field(
        256, gt=0, description="Megabytes of tasks that a reward worker keeps; others are read anew"
    )

    @field_validator("judges")
    @classmethod
    def _named(cls, judges: dict[str, JudgeSection]) -> dict[str, JudgeSection]:
        for name in judges:
            if not _NAME.fullmatch(name):
                raise ValueError(f"{name!r} is no name of up to 64 letters, digits, _ and -")
        return judges


class RewardWorkerSettings(ProcessSettings):
    """All settings of `python -m seamlessflow.recorded.judging`."""

    rewards: RewardsSection = Field(default_factory=RewardsSection)
