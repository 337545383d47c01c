"""Settings that several processes share. Importable without torch, Kafka or renderers.

Every process has one frozen settings class made of these; a wrong value is reported at start with
the name of its environment variable.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from infra.settings_help import describe

ENV_PREFIX = "SEAMLESSFLOW_"


class Section(BaseModel):
    """A frozen group of settings that refuses names it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class KafkaSettings(Section):
    """How to reach Kafka."""

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
    """Where traces and metrics go."""

    otlp_endpoint: str | None = Field(
        None, description="OTLP/HTTP collector, such as http://127.0.0.1:4318; none: no export"
    )
    sample_ratio: float = Field(
        1.0, ge=0, le=1, description="Share of sessions whose requests are traced"
    )


class ProcessSettings(BaseSettings):
    """Base of each process's settings: environment variables `SEAMLESSFLOW_SECTION__FIELD`."""

    model_config = SettingsConfigDict(
        frozen=True,
        env_prefix=ENV_PREFIX,
        env_nested_delimiter="__",
        extra="ignore",
    )

    kafka: KafkaSettings = Field(default_factory=KafkaSettings)
    telemetry: TelemetrySettings = Field(default_factory=TelemetrySettings)
    data_dir: Path = Field(
        Path(".seamlessflow"), description="Where files that processes share are put"
    )


S = TypeVar("S", bound=ProcessSettings)


def load(settings: type[S]) -> S:
    """The settings from the environment; ends the process with the names of the wrong variables.

    With `--help` among the arguments it prints what can be set, and ends the process.
    """
    if "--help" in sys.argv[1:]:
        print(f"Settings, from the environment:\n\n{describe(settings, ENV_PREFIX)}")
        sys.exit(0)
    try:
        return settings()
    except ValidationError as error:
        sys.exit("\n".join(["settings are not valid:", *explain(error)]))


def explain(error: ValidationError) -> Sequence[str]:
    """One line a wrong setting, with the variable that sets it."""
    return [
        f"  {variable(item['loc'])}: {item['msg']} (got {item['input']!r})"
        if "secret" not in str(item["loc"]).lower()
        else f"  {variable(item['loc'])}: {item['msg']}"
        for item in error.errors()
    ]


def variable(path: Sequence[int | str]) -> str:
    """Name of the environment variable of a setting."""
    return ENV_PREFIX + "__".join(str(part).upper() for part in path)


__all__ = ["KafkaSettings", "ProcessSettings", "SecretStr", "Section", "TelemetrySettings", "load"]
