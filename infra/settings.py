"""Settings that several processes share, and how a process loads its own. Imports nothing heavy.

Every process has one frozen settings class made from these sections. At start, `load` reports wrong
values, and variables that no process reads, by the name of their environment variable.
"""

import os
import re
import sys
from collections.abc import Mapping, Sequence
from json import JSONDecodeError
from math import ceil
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
)
from pydantic import SecretStr as SecretStr
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    SettingsConfigDict,
    SettingsError,
)

from seamlessflow.infra.errors import ExitStatus
from seamlessflow.infra.faults import faults
from seamlessflow.infra.help import describe
from seamlessflow.infra.network.addresses import StorageUrl
from seamlessflow.infra.variables import ENV_PREFIX as ENV_PREFIX
from seamlessflow.infra.variables import misspelt, refuse_truth, variable
from seamlessflow.schemas.records import Sampling
from seamlessflow.schemas.releases import release_named

_CREDENTIAL = re.compile("password|secret|key.pem|jaas|oauthbearer.config")
"""Words in the names of librdkafka settings that have secret values."""
COLDEST = 0.01
"""Lowest temperature at which engines sample; below it they are greedy, or use this one."""
NO_JSON = "must be JSON, such as [...] or {...}"


def _can_be_sent(key: SecretStr) -> SecretStr:
    text = key.get_secret_value()
    if text != text.strip() or not text.isascii() or not text.isprintable():
        raise ValueError(
            "must be printable ASCII without white space around it, or no HTTP header carries it: "
            "a key that was read from a file often has the line feed of that file at its end"
        )
    return key


SentKey = Annotated[SecretStr, AfterValidator(_can_be_sent)]
"""A setting: the key that clients send in an HTTP header."""


class Section(BaseModel):
    """A frozen group of settings that refuses unknown names, and numbers that are not finite."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _numbers(cls, value: object, info: ValidationInfo) -> object:
        return refuse_truth(value, cls.model_fields[info.field_name or ""].annotation)


class KafkaSettings(Section):
    """The Kafka cluster's address, and options for its clients."""

    bootstrap_servers: str = Field("127.0.0.1:9092", description="Brokers, host:port with commas")
    topic_prefix: str = Field(
        "", description="Starts every topic, group and transactional id, to share a cluster"
    )
    wait_s: float = Field(
        300,
        gt=0,
        description="Seconds that a starting process waits for a Kafka that does not answer or is "
        "still recovering. After the start, it waits out an outage however long that lasts",
    )
    group_protocol: Literal["auto", "consumer", "classic"] = Field(
        "auto",
        description="Protocol for consumer groups: consumer (Kafka 4, KIP-848), classic, or auto. "
        "auto: consumer if the cluster has it; each start takes a second to find out",
    )
    session_timeout_s: float = Field(
        10,
        ge=6,
        description="Seconds without a heartbeat until a member loses its partitions, with the "
        "classic protocol. The consumer protocol has the broker's "
        "group.consumer.session.timeout.ms (45 s by default)",
    )
    write_release: str | None = Field(
        None,
        description="Write records with this release's schemas, so that its processes can read "
        "them in a rolling upgrade (seamlessflow schemas releases); none: this release",
    )
    blobs: StorageUrl | None = Field(
        None,
        description="URL where records too large for their topic are stored: file:///mnt/blobs, or "
        "s3://bucket/path with the package s3fs. The same for all processes; none: a trajectory "
        "that is too large loses its tokens",
    )
    options: dict[str, str | int | float | bool | SecretStr] = Field(
        default_factory=dict,
        description="Further librdkafka settings for every client, such as security.protocol, "
        "sasl.mechanism, sasl.username, sasl.password, ssl.ca.location",
        repr=False,
    )

    @field_validator("options")
    @classmethod
    def _hidden(
        cls, options: dict[str, str | int | float | bool | SecretStr]
    ) -> dict[str, str | int | float | bool | SecretStr]:
        """Return the options, with credentials wrapped so that neither text nor log shows them."""
        return {
            name: SecretStr(value) if isinstance(value, str) and _CREDENTIAL.search(name) else value
            for name, value in options.items()
        }

    @field_validator("write_release")
    @classmethod
    def _known(cls, version: str | None) -> str | None:
        return version if version is None else release_named(version).version


class TelemetrySettings(Section):
    """Collector for traces and metrics."""

    otlp_endpoint: str | None = Field(
        None,
        description="OTLP/HTTP collector, such as http://127.0.0.1:4318; none: from the variable "
        "OTEL_EXPORTER_OTLP_ENDPOINT, and no export without it",
    )
    metrics_port: int | None = Field(
        None,
        ge=0,
        le=65_535,
        description="Port for this process's metrics in the Prometheus text format, at /metrics. "
        "0: a free one, whose address is written below DATA_DIR/metrics; none: not served",
    )
    metrics_host: str = Field("127.0.0.1", description="Address on which metrics are served")
    sample_ratio: float | None = Field(
        None,
        ge=0,
        le=1,
        description="Share of sessions whose requests are traced; none: from the variable "
        "OTEL_TRACES_SAMPLER_ARG, and all without it",
    )


class PastSection(Section):
    """A policy's past versions, which another name shows to agents, one at a time."""

    model_config = ConfigDict(populate_by_name=True)

    policy: str = Field(
        alias="of", min_length=1, description="Trained policy whose past versions are shown"
    )
    every: int = Field(
        20,
        ge=1,
        description="Optimizer steps between two past versions; the first has the initial weights",
    )


class SharedRunSection(Section):
    """A run's settings that trainer and scheduler must agree on; the scheduler adds its own."""

    model_config = ConfigDict(extra="ignore")

    policy: str = Field(
        "policy", min_length=1, description="Policy that is trained; with several, the first"
    )
    policies: tuple[str, ...] = Field(
        (),
        description="All policies that are trained on the same sessions, the first one first; "
        "none: only policy. `seamlessflow train` fills it in from `policies`",
    )
    frozen: dict[str, PastSection | None] = Field(
        default_factory=dict,
        description="Policies that are served but not trained, each with the past versions that it "
        "shows, or none. `seamlessflow train` fills it in from `policies`",
    )
    roles: dict[str, str] = Field(
        default_factory=dict,
        description="Each role's policy, which `seamlessflow train` fills in from agents.roles",
    )
    steps: int = Field(100, ge=1, description="Optimizer steps after which the run is finished")
    groups_per_step: int = Field(8, ge=1, description="Groups in each step's batch (B)")
    lag: int = Field(
        1,
        ge=0,
        description="How many optimizer steps a token's policy version may be behind the version "
        "being trained; 0: rollout and training take turns",
    )

    @property
    def all_policies(self) -> tuple[str, ...]:
        """All trained policies, the first one first."""
        return self.policies or (self.policy,)

    @property
    def served_policies(self) -> tuple[str, ...]:
        """All policies that workers serve, the trained ones first."""
        return (*self.all_policies, *self.frozen)


class SharedPacingSection(Section):
    """Pacing settings that trainer and scheduler must agree on; the scheduler adds its own."""

    model_config = ConfigDict(extra="ignore")

    refill: float = Field(
        2,
        ge=0,
        description="Dropped groups that are replaced in a step, in batches: k means up to k x B "
        "groups. Beyond that the step trains fewer groups, or is skipped",
    )
    max_attempts: int = Field(
        2,
        ge=1,
        description="Attempts at each sample. A group ends at once if each of its samples has "
        "ended or failed this often",
    )
    extra_groups: float = Field(
        0,
        ge=0,
        description="Groups under way beyond (lag + 1) x B, in batches: 0.5 is half a batch more. "
        "A step takes the first B that are ready; the others go on across the weight update",
    )

    redundancy: int = Field(
        0,
        ge=0,
        description="Samples that each group begins beyond run.group_size. When run.group_size "
        "samples have ended well, it is complete and the rest are stopped. This favours short "
        "episodes",
    )

    def extra_count(self, groups_per_step: int) -> int:
        """Return `extra_groups` as a count of groups."""
        return ceil(self.extra_groups * groups_per_step)


class SamplingSection(Section):
    """Sampling for sessions that are not trained, instead of the policy's."""

    temperature: float | None = Field(
        None, ge=0, le=2, description="Temperature; 0: greedy; none: policy.temperature"
    )
    top_p: float | None = Field(
        None, gt=0, le=1, description="Nucleus (top-p); 1: off; none: policy.top_p"
    )
    top_k: int | None = Field(None, ge=0, description="Top-k; 0: off; none: policy.top_k")

    @field_validator("temperature")
    @classmethod
    def _samples_or_not(cls, temperature: float | None) -> float | None:
        if temperature is not None and 0 < temperature < COLDEST:
            raise ValueError(f"must be 0 (greedy), or {COLDEST:g} or more")
        return temperature

    @property
    def overrides(self) -> Sampling | None:
        """Return what replaces the policy's parameters, or None if nothing does."""
        chosen = self.model_dump(exclude_none=True)
        return Sampling(**chosen) if chosen else None


class PassSection(Section):
    """Chances to pass that are reported for evaluated tasks."""

    model_config = ConfigDict(extra="ignore")

    success: float | None = Field(
        None, description="Least return to pass; none: as in evaluation, and there 1"
    )
    k: tuple[Annotated[int, Field(ge=1)], ...] | None = Field(
        None,
        description="Values of k for pass@k and pass^k, at most samples; none: as in evaluation, "
        "and there 1, 2, 4 and so on",
    )


class SharedEvaluationSection(PassSection):
    """Evaluation settings that the trainer needs too; the scheduler adds its own."""

    tasks: Path | None = Field(
        None, description="Tasks, as in pacing.tasks; none, and no sets: no evaluation"
    )
    split: str = Field("test", description="Name for these tasks in sessions and trajectories")
    sets: Mapping[str, PassSection] = Field(
        default_factory=dict, description="Several sets by name"
    )

    def passing(self, split: str) -> tuple[float, tuple[int, ...]]:
        """Return the least return that passes in a set, and its k; an empty k means the usual."""
        chosen = self.sets.get(split, self)
        success = self.success if chosen.success is None else chosen.success
        return 1.0 if success is None else success, chosen.k or self.k or ()

    @property
    def splits(self) -> tuple[str, ...]:
        """Names of all sets."""
        return tuple(self.sets) or ((self.split,) if self.tasks is not None else ())


class ProcessSettings(BaseSettings):
    """Base for every process's settings, read from variables `SEAMLESSFLOW_SECTION__FIELD`."""

    model_config = SettingsConfigDict(
        frozen=True,
        env_prefix=ENV_PREFIX,
        env_nested_delimiter="__",
        extra="ignore",
        allow_inf_nan=False,
    )

    kafka: KafkaSettings = Field(default_factory=KafkaSettings)
    telemetry: TelemetrySettings = Field(default_factory=TelemetrySettings)
    data_dir: Path = Field(
        Path(".seamlessflow"), description="Directory for files that processes share"
    )


S = TypeVar("S", bound=ProcessSettings)


def load(settings: type[S]) -> S:
    """Return the settings from the environment; print the wrong variables, if any, and exit.

    With `--help` among the arguments, print all settings and exit.
    """
    if "--help" in sys.argv[1:]:
        print(f"Settings, from the environment:\n\n{describe(settings, ENV_PREFIX)}")
        sys.exit(0)
    wrong = unread()
    try:
        loaded = settings()
    except (ValidationError, SettingsError) as error:
        wrong = [*wrong, *explain(error, settings)]
    if wrong:
        print("\n".join(["settings are not valid:", *wrong]), file=sys.stderr)
        sys.exit(ExitStatus.LASTING)
    return loaded


def unread() -> Sequence[str]:
    """Return an error line for each `SEAMLESSFLOW_*` variable that no process reads."""
    return misspelt(os.environ, ENV_PREFIX)


def explain(error: ValidationError | SettingsError, settings: type[BaseModel]) -> Sequence[str]:
    """Return an error line for each wrong setting, with its variable and without credentials."""
    if isinstance(error, SettingsError):
        names = no_json(error, os.environ)
        cause = error.__cause__ or error
        return [f"  {name}: {NO_JSON}: {cause}" for name in names] or [f"  {error}"]
    return [f"  {fault.line(variable)}" for fault in faults(error, settings)]


def from_environment(
    settings: type[BaseSettings], environment: Mapping[str, str]
) -> tuple[Mapping[str, Any], Mapping[str, str]]:
    """Return the settings' values from variables, nested, and what is wrong with other variables.

    A variable whose text is no JSON is wrong, and left out of the values.
    """
    wrong: dict[str, str] = {}
    source = EnvSettingsSource(settings)
    while True:
        kept = {name: text for name, text in environment.items() if name not in wrong}
        source.env_vars = {name.lower(): text for name, text in kept.items()}
        try:
            return source(), wrong
        except SettingsError as error:
            names = no_json(error, kept)
            if not names:
                raise
            wrong |= {name: f"{NO_JSON}: {error.__cause__}" for name in names}


def no_json(error: SettingsError, environment: Mapping[str, str]) -> Sequence[str]:
    """Return the variables whose text is no JSON.

    The library names only the section, so they are found by their text.
    """
    cause = error.__cause__
    if not isinstance(cause, JSONDecodeError):
        return []
    names = [name for name, value in environment.items() if value == cause.doc]
    return sorted(name for name in names if name.upper().startswith(ENV_PREFIX))
