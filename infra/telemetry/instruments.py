"""The instruments of a process: its traces and its metrics, from its start to its end.

Made once a process, by its bootstrap, and given to all parts that are observed. A process that
begins no spans has its metrics alone.
"""

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field

from seamlessflow.infra.settings import ProcessSettings
from seamlessflow.infra.telemetry.metrics import Metrics
from seamlessflow.infra.telemetry.output import MetricsOutput
from seamlessflow.infra.telemetry.tracing import Telemetry, telemetry

_NO_GROUPS: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True)
class Instruments:
    """Traces and metrics of a process."""

    traces: Telemetry
    metrics: Metrics = field(default_factory=Metrics)


@contextmanager
def instruments(
    settings: ProcessSettings, service: str, name: str, groups: Mapping[str, str] = _NO_GROUPS
) -> Iterator[Instruments]:
    """Yield instruments whose traces and metrics go where the settings say.

    `groups`: the Kafka consumer group of each topic that is read by one. Raises `SettingsRejected`
    if the port for metrics is taken.
    """
    prefix = settings.kafka.topic_prefix
    with (
        process_metrics(settings, service, name) as metrics,
        closing(telemetry(settings.telemetry, service, name, prefix, groups)) as traces,
    ):
        yield Instruments(traces, metrics)


@contextmanager
def process_metrics(settings: ProcessSettings, service: str, name: str) -> Iterator[Metrics]:
    """Yield metrics that go where the settings say. Raises as `instruments` does."""
    metrics = Metrics()
    output = MetricsOutput(settings, metrics, service, name)
    try:
        yield metrics
    finally:
        output.close()
