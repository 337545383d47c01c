"""Settings for judges and reward workers: the section `rewards`. Importable without Kafka."""

import re
from string import Template
from typing import Literal, Self

from pydantic import ConfigDict, Field, field_validator, model_validator

from seamlessflow.infra.settings import COLDEST, ProcessSettings, SecretStr, Section, SentKey
from seamlessflow.infra.worker.judged_rewards import SharedRewardsSection

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_HOTTEST = 2.0
"""Highest temperature that a gateway takes."""
_PLACES = {"answer", "messages", "task", "metadata"}
"""Names that a prompt may have, each behind a dollar sign."""


class ModelSection(Section):
    """A model that judges: behind OpenAI's chat completions, or a policy of the run."""

    url: str = Field(
        "",
        pattern=r"^(https?://.+)?$",
        description="The server's base URL, which often ends in /v1; set either this or policy",
    )
    name: str = Field("", description="The model's name at the server")
    policy: str = Field(
        "",
        description="Policy in this run that judges. It is served and not trained: its "
        "policies.NAME.frozen is a directory",
    )
    api_key: SentKey = Field(SecretStr(""), description="Key sent to the server as a bearer token")
    prompt: str = Field(
        min_length=1,
        description="The judge's prompt. $answer stands for the last answer, $messages for the "
        "whole history, and $task and $metadata for the task and its metadata as JSON; write $$ "
        "for a dollar sign",
    )
    score: str = Field(
        "",
        description="Regular expression whose only group is the score, such as Score: (\\d+); "
        "empty: the answer has a JSON object with the member score",
    )
    temperature: float = Field(0, ge=0, description="Temperature; 0: greedy")
    max_tokens: int = Field(1024, ge=1, description="Most tokens in an answer")

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if bool(self.url) == bool(self.policy):
            raise ValueError("either url or policy must be set")
        if self.url and not self.name:
            raise ValueError("a server is asked for a model: set name")
        if self.policy and (self.name or self.api_key.get_secret_value()):
            raise ValueError("a policy of the run has no other name and no key: leave them out")
        if self.policy and not (self.temperature == 0 or COLDEST <= self.temperature <= _HOTTEST):
            text = f"must be 0 (greedy), or {COLDEST:g} to {_HOTTEST:g}"
            raise ValueError(f"temperature of a policy {text}")
        return self

    @field_validator("prompt")
    @classmethod
    def _fills(cls, prompt: str) -> str:
        template = Template(prompt)
        if not template.is_valid() or (unknown := set(template.get_identifiers()) - _PLACES):
            what = f"${min(unknown)}" if template.is_valid() else "a $ without a name"
            raise ValueError(f"{what} stands for nothing: write $$ for a dollar sign")
        return prompt

    @field_validator("score")
    @classmethod
    def _has_one_group(cls, score: str) -> str:
        try:
            groups = re.compile(score).groups
        except re.error as error:
            raise ValueError(f"is no regular expression: {error}") from None
        if score and groups != 1:
            raise ValueError(f"has {groups} groups, and one of them is the score: write one (...)")
        return score


class JudgeSection(Section):
    """A judge: what it runs, and how long and how often."""

    model_config = ConfigDict(populate_by_name=True)

    callable: str = Field(
        "",
        description="Judge as a Python callable, module:function, called with the session (see "
        "recorded/judging/judged_session.py). Set exactly one of callable, command and model",
    )
    command: tuple[str, ...] = Field(
        (),
        description="Judge as a command line, a JSON list. It reads the session as JSON from "
        "standard input. The last line that it prints is the reward",
    )
    model: ModelSection | None = Field(
        None, description="Judge as a model that is asked for a score"
    )
    unit: Literal["session", "turns"] = Field(
        "session",
        alias="of",
        description="What it rewards: the session, or turns. turns: each completed turn, by a "
        "callable or command that gives a list, or a mapping from turn ids to rewards",
    )
    timeout_s: float = Field(60, gt=0, description="Seconds that one try may take")
    concurrency: int = Field(
        8, ge=1, description="Most tries by this judge at the same time in one reward worker"
    )
    retries: int = Field(
        2,
        ge=0,
        description="Further tries after an error, a time-out, or an answer that is no reward. "
        "Tries that failed in an outage do not count",
    )

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if sum(map(bool, (self.callable, self.command, self.model))) != 1:
            raise ValueError("exactly one of callable, command and model must be set")
        if self.model is not None and self.unit == "turns":
            raise ValueError("a model judges the session: set a callable or a command for turns")
        return self


class RewardsSection(SharedRewardsSection):
    """Judges of a run, and the processes that run them."""

    model_config = ConfigDict(extra="forbid")

    judges: dict[str, JudgeSection] = Field(
        default_factory=dict,
        description="Judges, by the names of their rewards, which trainer.rewards weighs",
    )
    workers: int = Field(1, ge=1, description="Reward worker processes; they share the sessions")
    group: str = Field(
        "reward-workers",
        description="Kafka consumer group in which reward workers share the partitions of sessions",
    )
    tasks_mb: float = Field(
        256,
        gt=0,
        description="Most megabytes of tasks that a reward worker keeps in memory; it reads other "
        "tasks again",
    )
    gateway_url: str = Field(
        "http://127.0.0.1:8800",
        description="The gateway's URL, or several with commas, for judges that are policies",
    )
    admin_key: SentKey = Field(
        SecretStr(""), description="The gateway's admin key, for judges that are policies"
    )

    @property
    def policies(self) -> frozenset[str]:
        """Return the run's policies that judge."""
        models = (judge.model for judge in self.judges.values())
        return frozenset(model.policy for model in models if model is not None and model.policy)

    @property
    def shared(self) -> SharedRewardsSection:
        """Return what manager and scheduler need, without any model's key."""
        return SharedRewardsSection(judges={name: {} for name in self.judges}, wait_s=self.wait_s)

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
