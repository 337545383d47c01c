"""Settings that several processes share, and how a process loads its own. Imports nothing heavy.

Every process has one frozen settings class made of these sections. `load` reports wrong values,
and variables that no process reads, at start and by the name of their environment variable.
"""

import os
import sys
from collections.abc import Mapping, Sequence
from json import JSONDecodeError
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict, SettingsError

from infra.help import describe
from infra.variables import misspelt

ENV_PREFIX = "SEAMLESSFLOW_"
_CREDENTIALS = ("secret", "key", "password", "options")
"""Values of variables with one of these words in their names are never shown."""


class Section(BaseModel):
    """A frozen group of settings that refuses names it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class KafkaSettings(Section):
    """Address of the Kafka cluster, and options of its clients."""

    bootstrap_servers: str = Field("127.0.0.1:9092", description="Brokers, host:port with commas")
    topic_prefix: str = Field(
        "", description="Put before every topic, group and transactional id, to share a cluster"
    )
    options: dict[str, str | int | float | bool] = Field(
        default_factory=dict,
        description="Further librdkafka settings for every client, such as security.protocol, "
        "sasl.mechanism, sasl.username, sasl.password, ssl.ca.location",
        repr=False,
    )


class TelemetrySettings(Section):
    """Collector of traces and metrics."""

    otlp_endpoint: str | None = Field(
        None, description="OTLP/HTTP collector, such as http://127.0.0.1:4318; none: no export"
    )
    sample_ratio: float = Field(
        1.0, ge=0, le=1, description="Share of sessions whose requests are traced"
    )


class SharedRunSection(Section):
    """Settings of a run that trainer and scheduler must agree on; the scheduler adds its own."""

    model_config = ConfigDict(extra="ignore")

    policy: str = Field("policy", min_length=1, description="Policy that is trained")
    steps: int = Field(100, ge=1, description="Optimizer steps until the run is finished")
    groups_per_step: int = Field(8, ge=1, description="Groups that make the batch of a step (B)")
    lag: int = Field(
        1,
        ge=0,
        description="Optimizer steps that a token's policy version may be behind the one trained "
        "from; 0: rollout and training take turns",
    )


class SharedPacingSection(Section):
    """Settings of pacing that trainer and scheduler must agree on; the scheduler adds its own."""

    model_config = ConfigDict(extra="ignore")

    refill: float = Field(
        2,
        ge=0,
        description="Dropped groups replaced in a step, in batches (k of k x B); behind that a "
        "step is trained with fewer groups, or skipped",
    )


class ProcessSettings(BaseSettings):
    """Base of every process's settings, read from variables `SEAMLESSFLOW_SECTION__FIELD`."""

    model_config = SettingsConfigDict(
        frozen=True,
        env_prefix=ENV_PREFIX,
        env_nested_delimiter="__",
        extra="ignore",
    )

    kafka: KafkaSettings = Field(default_factory=KafkaSettings)
    telemetry: TelemetrySettings = Field(default_factory=TelemetrySettings)
    data_dir: Path = Field(
        Path(".seamlessflow"), description="Directory for files that processes share"
    )


S = TypeVar("S", bound=ProcessSettings)


def load(settings: type[S]) -> S:
    """Return the settings from the environment; exit with the wrong variables if there are any.

    With `--help` among the arguments, print all settings and exit.
    """
    if "--help" in sys.argv[1:]:
        print(f"Settings, from the environment:\n\n{describe(settings, ENV_PREFIX)}")
        sys.exit(0)
    wrong = unread()
    try:
        loaded = settings()
    except (ValidationError, SettingsError) as error:
        wrong = [*wrong, *explain(error)]
    if wrong:
        sys.exit("\n".join(["settings are not valid:", *wrong]))
    return loaded


def unread() -> Sequence[str]:
    """Return an error line for each `SEAMLESSFLOW_*` variable that no process reads."""
    return misspelt(os.environ, ENV_PREFIX)


def explain(error: ValidationError | SettingsError) -> Sequence[str]:
    """Return an error line for each wrong setting, with its variable, never with a credential."""
    if isinstance(error, SettingsError):
        return _not_json(error)
    return [f"  {_place(item)}{item['msg']}{_given(item)}" for item in error.errors()]


def _not_json(error: SettingsError) -> Sequence[str]:
    """Return the error lines for text that is no JSON.

    The library names only the section, so the variable is found by the text that it holds.
    """
    cause = error.__cause__
    if not isinstance(cause, JSONDecodeError):
        return [f"  {error}"]
    names = [name for name, value in os.environ.items() if value == cause.doc]
    wanted = sorted(name for name in names if name.upper().startswith(ENV_PREFIX))
    return [f"  {name}: must be JSON, such as [...] or {{...}}: {cause}" for name in wanted]


def _place(item: Mapping[str, Any]) -> str:
    return f"{variable(item['loc'])}: " if item["loc"] else ""  # a rule about several has none


def _given(item: Mapping[str, Any]) -> str:
    """Return the value that was set, if it is a single value and no credential."""
    place, given = str(item["loc"]).lower(), item["input"]
    hidden = item["type"] == "extra_forbidden" or any(name in place for name in _CREDENTIALS)
    return "" if hidden or not isinstance(given, str | int | float) else f" (got {given!r})"


def variable(path: Sequence[int | str]) -> str:
    """Return the name of the environment variable of a setting."""
    return ENV_PREFIX + "__".join(str(part).upper() for part in path)


__all__ = [
    "KafkaSettings",
    "ProcessSettings",
    "SecretStr",
    "Section",
    "SharedPacingSection",
    "SharedRunSection",
    "TelemetrySettings",
    "load",
]
