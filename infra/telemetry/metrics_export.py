"""Export of a process's metrics to an OpenTelemetry collector, as OTLP over HTTP.

`prometheus_client` counts, because the OpenTelemetry counters cost twelve times as much; here its
families become OTLP points.
"""

import threading
import time

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics import export
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from infra.settings import TelemetrySettings
from infra.telemetry.metrics import Family, Metrics
from infra.telemetry.tracing import resource

_EVERY_S = 10.0
_TIMEOUT_MS = 5_000


class MetricsExport:
    """Thread that sends a process's metrics to the collector every ten seconds."""

    def __init__(
        self, exporter: export.MetricExporter, metrics: Metrics, service: str, instance: str
    ) -> None:
        self._exporter = exporter
        self._metrics = metrics
        self._resource = resource(service, instance)
        self._started_ns = time.time_ns()
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
            ended = self._closed.wait(_EVERY_S)
            self._exporter.export(self._data(), _TIMEOUT_MS)

    def _data(self) -> export.MetricsData:
        times = (self._started_ns, time.time_ns())
        metrics = [_metric(family, *times) for family in self._metrics.families()]
        scope = export.ScopeMetrics(InstrumentationScope("seamlessflow"), metrics, "")
        return export.MetricsData([export.ResourceMetrics(self._resource, [scope], "")])


def metrics_export(
    settings: TelemetrySettings, metrics: Metrics, service: str, instance: str
) -> MetricsExport | None:
    """Return the export by the settings, or None without an endpoint."""
    if settings.otlp_endpoint is None:
        return None
    exporter = OTLPMetricExporter(f"{settings.otlp_endpoint.rstrip('/')}/v1/metrics")
    return MetricsExport(exporter, metrics, service, instance)


def _metric(family: Family, started_ns: int, now_ns: int) -> export.Metric:
    cumulative = export.AggregationTemporality.CUMULATIVE
    values = [
        export.NumberDataPoint(labels, started_ns, now_ns, value) for labels, value in family.values
    ]
    data: export.Sum | export.Gauge | export.Histogram
    match family.kind:
        case "histogram":
            data = export.Histogram(_histogram_points(family, started_ns, now_ns), cumulative)
        case "counter":
            data = export.Sum(values, cumulative, True)
        case _:
            data = export.Gauge(values)
    return export.Metric(family.name, family.meaning, "", data)


def _histogram_points(
    family: Family, started_ns: int, now_ns: int
) -> list[export.HistogramDataPoint]:
    return [
        export.HistogramDataPoint(
            labels, started_ns, now_ns, sum(d.counts), d.total, d.counts, d.bounds, 0, d.total
        )
        for labels, d in family.distributions
    ]
