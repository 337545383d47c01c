"""Configuration of a whole run on one machine; the settings of every process follow from it.

Its sections are the settings of the processes, under the same names: `run.lag` in the file is what
`SEAMLESSFLOW_RUN__LAG` is for the trainer alone. Environment variables override the file.
Importable without torch, Kafka or renderers. `processes/specs.py` makes environments of it.
"""

import secrets
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Self

import yaml
from pydantic import Field, ValidationError, field_validator, model_validator
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
)

from consumers.trajectories.settings import ManagerSection
from infra.errors import SeamlessFlowError
from infra.settings import ENV_PREFIX, KafkaSettings, Section, TelemetrySettings, explain, unread
from producers.agents.settings import AgentsSection
from producers.gateway.settings import GatewaySection
from producers.rollout.settings import RolloutSection
from scheduler.settings import EvaluationSection, PacingSection, RunSection, SchedulerSection
from trainer.settings import PolicySection, TrainerSection


class ConfigRejected(SeamlessFlowError):
    """A run configuration cannot be used."""

    def __init__(self, path: Path | None, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(f"{path or 'configuration'}: {reason}")


class WorkerSection(Section):
    """A worker of the run: a rollout process, a trainer process, or both on the same device."""

    id: str = Field(min_length=1, pattern=r"^[A-Za-z0-9_.-]+$", description="Id of the worker")
    tags: tuple[Literal["rollout", "train"], ...] = Field(
        ("rollout",), min_length=1, description="Roles it can take"
    )
    device: str | None = Field(
        None,
        description="Device of both its processes, such as cuda:1; if not set, those of "
        "rollout.torch and trainer",
    )
    environment: dict[str, str] = Field(
        default_factory=dict,
        description="More environment variables of its processes, such as CUDA_VISIBLE_DEVICES",
    )


class BrokerSection(Section):
    """The embedded Kafka; not used if `kafka` names another."""

    heap_mb: int = Field(384, ge=128, description="Most memory of its Java heap, in MiB")


class RunConfig(BaseSettings):
    """All settings that `seamlessflow train --config FILE` reads."""

    model_config = SettingsConfigDict(
        frozen=True, extra="forbid", env_prefix=ENV_PREFIX, env_nested_delimiter="__"
    )

    out: Path = Field(
        Path(".seamlessflow/run"),
        description="Directory for everything that the run writes; a run in it is resumed",
    )
    workers: tuple[WorkerSection, ...] = Field(
        (WorkerSection(id="w0", tags=("rollout", "train")),),
        min_length=1,
        description="The workers on this machine",
    )
    policy: PolicySection = Field(
        default_factory=PolicySection, description="The initial model and how it is sampled"
    )
    run: RunSection = Field(
        default_factory=RunSection, description="Length and size of the training"
    )
    pacing: PacingSection = Field(
        default_factory=PacingSection, description="The tasks, and when they are issued"
    )
    evaluation: EvaluationSection = Field(
        default_factory=EvaluationSection, description="Tasks for evaluation only"
    )
    agents: AgentsSection = Field(
        default_factory=AgentsSection, description="The agent and its reward"
    )
    trainer: TrainerSection = Field(
        default_factory=TrainerSection, description="How the policy is trained"
    )
    rollout: RolloutSection = Field(
        default_factory=RolloutSection,
        description="How the policy is sampled; the same for all workers",
    )
    scheduler: SchedulerSection = Field(
        default_factory=SchedulerSection, description="How roles are assigned to workers"
    )
    manager: ManagerSection = Field(
        default_factory=ManagerSection, description="The trajectory manager"
    )
    gateway: GatewaySection = Field(
        default_factory=lambda: GatewaySection(secret=_new_secret()),
        description="The gateway; a secret and a free port are chosen if they are not set",
    )
    broker: BrokerSection = Field(default_factory=BrokerSection, description="The embedded Kafka")
    kafka: KafkaSettings | None = Field(
        None, description="Kafka to use; if not set, an embedded one with its data in OUT/kafka"
    )
    telemetry: TelemetrySettings = Field(
        default_factory=TelemetrySettings, description="Where traces and metrics go"
    )
    start_timeout_s: float = Field(
        180, gt=0, description="Seconds after which all processes must be ready"
    )

    @field_validator("gateway", mode="before")
    @classmethod
    def _with_secret(cls, value: object) -> object:
        # The default factory is not called for a section that names only a port, for example.
        return {"secret": _new_secret(), **value} if isinstance(value, dict) else value

    @model_validator(mode="after")
    def _fits(self) -> Self:
        ids = [worker.id for worker in self.workers]
        if len(set(ids)) < len(ids):
            raise ValueError("two workers have the same id")
        if not any("rollout" in worker.tags for worker in self.workers):
            raise ValueError("no worker can roll out")
        if bool(self.agents.callable) == bool(self.agents.command):
            raise ValueError("exactly one of agents.callable and agents.command must be set")
        return self

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Give environment variables precedence over the file."""
        return env_settings, init_settings

    @property
    def kafka_dir(self) -> Path:
        """Directory for the data of the embedded Kafka."""
        return self.out / "kafka"

    @property
    def logs_dir(self) -> Path:
        """Directory for the log files of all processes."""
        return self.out / "logs"

    @property
    def weights_dir(self) -> Path:
        """Directory for published weights, one folder for each version."""
        return self.trainer.weights_dir or self.out / "weights"

    @property
    def trained_dir(self) -> Path:
        """Directory for the tokens that each step trained on."""
        return self.trainer.trained_dir or self.out / "trained"


def load(path: Path) -> RunConfig:
    """Read the configuration from a YAML or TOML file. Raises `ConfigRejected`.

    Relative paths in it are relative to the working directory.
    """
    return parse(_read(path), path)


def parse(values: Mapping[str, Any], path: Path | None = None) -> RunConfig:
    """Make the configuration from values and the environment. Raises `ConfigRejected`."""
    # A misspelt variable would be ignored in silence.
    if wrong := unread():
        raise ConfigRejected(path, "\n".join(["not valid:", *wrong]))
    try:
        return RunConfig(**values)
    except (ValidationError, SettingsError) as error:
        raise ConfigRejected(path, "\n".join(["not valid:", *explain(error)])) from error


def require_files(config: RunConfig) -> None:
    """Raise `ConfigRejected` if the model or the tasks of a training are missing."""
    if not (config.policy.model / "config.json").is_file():
        reason = f"policy.model: {config.policy.model} is no Hugging Face model directory"
        raise ConfigRejected(None, reason)
    if config.pacing.tasks is None:
        raise ConfigRejected(None, "pacing.tasks: no file of tasks is named")
    for name, tasks in (("pacing", config.pacing.tasks), ("evaluation", config.evaluation.tasks)):
        if tasks is not None and not tasks.is_file():
            raise ConfigRejected(None, f"{name}.tasks: there is no file {tasks}")


def _read(path: Path) -> Mapping[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
        values = tomllib.loads(text) if path.suffix == ".toml" else yaml.safe_load(text)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, yaml.YAMLError) as error:
        raise ConfigRejected(path, str(error)) from error
    if not isinstance(values, dict):
        raise ConfigRejected(path, "it is not a mapping of sections")
    return values


def _new_secret() -> str:
    return secrets.token_urlsafe(32)
