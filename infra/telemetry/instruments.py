"""A process's instruments: its traces and metrics, and where they go until it ends.

Each process's bootstrap makes them once, and gives them to all observed parts. A process that
begins no spans has only metrics.
"""

import json
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics import export
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from seamlessflow.infra.errors import SettingsRejected
from seamlessflow.infra.network.addresses import address_of
from seamlessflow.infra.settings import ProcessSettings, TelemetrySettings
from seamlessflow.infra.telemetry.environment import (
    endpoint,
    export_interval_s,
    forget_empty,
    resource,
    wants_deltas,
)
from seamlessflow.infra.telemetry.metrics import Distribution, Family, Labels, Metrics, unit
from seamlessflow.infra.telemetry.tracing import Telemetry, telemetry

_log = logging.getLogger(__name__)
TARGETS = "metrics"
"""Directory with process addresses, as Prometheus reads them (`file_sd_configs`)."""

_TIMEOUT_MS = 5_000
_SeriesKey = tuple[str, tuple[tuple[str, str], ...]]


class MetricsOutput:
    """A process's `/metrics` server and metrics export, as far as the settings ask for them."""

    def __init__(
        self, settings: ProcessSettings, metrics: Metrics, service: str, instance: str
    ) -> None:
        """Begin both. Raises `SettingsRejected` if the port is taken."""
        self._target = settings.data_dir / TARGETS / f"{service}-{instance}.json"
        self._end_serving: Callable[[], None] | None = None
        host = settings.telemetry.metrics_host
        port = settings.telemetry.metrics_port
        if port is not None:
            try:
                served, self._end_serving = metrics.serve(host, port)
            except OSError as error:
                variable = "SEAMLESSFLOW_TELEMETRY__METRICS_PORT"
                raise SettingsRejected(
                    variable, f"{address_of(host, port)}: {error.strerror}"
                ) from error
            _log.info("metrics at http://%s/metrics", address_of(host, served))
            if port == 0:
                labels = {"service": service, "process": instance}
                _write_target(self._target, address_of(host, served), labels)
        self._export = metrics_export(settings.telemetry, metrics, service, instance)

    def close(self) -> None:
        """Stop serving, and export once more."""
        if self._end_serving is not None:
            self._target.unlink(missing_ok=True)
            self._end_serving()
        if self._export is not None:
            self._export.close()


class MetricsExport:
    """Thread that sends a process's metrics to the collector at intervals.

    Raises `SettingsRejected` for an interval or a temporality that cannot be obeyed.
    """

    def __init__(
        self, exporter: export.MetricExporter, metrics: Metrics, service: str, instance: str
    ) -> None:
        self._exporter = exporter
        self._metrics = metrics
        self._resource = resource(service, instance)
        self._every_s = export_interval_s()
        self._changes = Changes() if wants_deltas() else None
        self._since_ns = time.time_ns()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="metrics export", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Send once more and end."""
        self._closed.set()
        self._thread.join(2 * _TIMEOUT_MS / 1000)
        self._exporter.shutdown()

    def _serve(self) -> None:
        ended = False
        while not ended:
            ended = self._closed.wait(self._every_s)
            self._exporter.export(self._data(), _TIMEOUT_MS)

    def _data(self) -> export.MetricsData:
        families = self._metrics.families()
        now_ns = time.time_ns()
        temporality = export.AggregationTemporality.CUMULATIVE
        since_ns = self._since_ns
        if self._changes is not None:
            families = [self._changes.since_last(family) for family in families]
            temporality = export.AggregationTemporality.DELTA
            self._since_ns = now_ns
        metrics = [_metric(family, temporality, since_ns, now_ns) for family in families]
        scope = export.ScopeMetrics(InstrumentationScope("seamlessflow"), metrics, "")
        return export.MetricsData([export.ResourceMetrics(self._resource, [scope], "")])


def metrics_export(
    settings: TelemetrySettings, metrics: Metrics, service: str, instance: str
) -> MetricsExport | None:
    """Return the export that the settings ask for, or None without an endpoint."""
    forget_empty()
    url = endpoint(settings, "metrics")
    return (
        None if url is None else MetricsExport(OTLPMetricExporter(url), metrics, service, instance)
    )


class Changes:
    """Counter and histogram counts between two exports."""

    def __init__(self) -> None:
        self._counted: dict[_SeriesKey, float] = {}
        self._distributed: dict[_SeriesKey, Distribution] = {}

    def since_last(self, family: Family) -> Family:
        """Return a family with the counts since the last call; a gauge as it is."""
        if family.kind == "counter":
            values = [(labels, self._count(family, labels, n)) for labels, n in family.values]
            return replace(family, values=values)
        rows = [(labels, self._row(family, labels, row)) for labels, row in family.distributions]
        return replace(family, distributions=rows)

    def _count(self, family: Family, labels: Labels, count: float) -> float:
        key = family.name, tuple(labels.items())
        before = self._counted.get(key, 0)
        self._counted[key] = count
        return count - before

    def _row(self, family: Family, labels: Labels, now: Distribution) -> Distribution:
        key = family.name, tuple(labels.items())
        before = self._distributed.get(key, replace(now, counts=(0,) * len(now.counts), total=0))
        self._distributed[key] = now
        counts = tuple(n - m for n, m in zip(now.counts, before.counts, strict=True))
        return replace(now, counts=counts, total=now.total - before.total)


def _write_target(path: Path, address: str, labels: dict[str, str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps([{"targets": [address], "labels": labels}])
    path.write_text(text + "\n", encoding="utf-8")


def _metric(
    family: Family, temporality: export.AggregationTemporality, since_ns: int, now_ns: int
) -> export.Metric:
    values = [
        export.NumberDataPoint(labels, since_ns, now_ns, value) for labels, value in family.values
    ]
    data: export.Sum | export.Gauge | export.Histogram
    match family.kind:
        case "histogram":
            data = export.Histogram(_histogram_points(family, since_ns, now_ns), temporality)
        case "counter":
            data = export.Sum(values, temporality, True)
        case _:
            data = export.Gauge(values)
    return export.Metric(family.name, family.meaning, unit(family.name), data)


def _histogram_points(
    family: Family, since_ns: int, now_ns: int
) -> list[export.HistogramDataPoint]:
    return [
        export.HistogramDataPoint(
            labels, since_ns, now_ns, sum(d.counts), d.total, d.counts, d.bounds, 0, d.total
        )
        for labels, d in family.distributions
    ]


_NO_GROUPS: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True)
class Instruments:
    """A process's traces and metrics."""

    traces: Telemetry
    metrics: Metrics = field(default_factory=Metrics)


@contextmanager
def instruments(
    settings: ProcessSettings, service: str, name: str, groups: Mapping[str, str] = _NO_GROUPS
) -> Iterator[Instruments]:
    """Yield instruments whose traces and metrics go where the settings say.

    `groups`: by topic, the Kafka consumer group that reads it, if one does. Raises
    `SettingsRejected` if the port for metrics is taken.
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
