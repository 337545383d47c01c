"""A process's metrics, as Prometheus text and as OTLP points."""

import socket
import threading
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest
from opentelemetry.sdk.metrics import export

from seamlessflow.infra.errors import SettingsRejected
from seamlessflow.infra.network.addresses import HOST
from seamlessflow.infra.settings import ProcessSettings, TelemetrySettings
from seamlessflow.infra.telemetry.instruments import MetricsExport, MetricsOutput
from seamlessflow.infra.telemetry.metrics import Metrics
from seamlessflow.infra.telemetry.names import CONSUMER_LAG, METRICS, UNREADABLE
from tests import http
from tests.paths import ROOT
from tests.waiting import until

LATENCY = "seamlessflow_gateway_first_reply_seconds"
CALLS = "seamlessflow_gateway_requests_total"


def test_metrics_are_shown_as_prometheus_text() -> None:
    metrics = Metrics()
    metrics.counter(CALLS, route="chat", status="200").inc(2)
    metrics.histogram(LATENCY).observe(0.003)
    text = metrics.text().decode()
    assert f'{CALLS}{{route="chat",status="200"}} 2.0' in text
    assert f'{LATENCY}_bucket{{le="0.005"}} 1.0' in text


def test_a_metric_that_is_not_listed_is_refused() -> None:
    with pytest.raises(KeyError):
        Metrics().counter("seamlessflow_no_such_total")


class Collector(export.MetricExporter):
    """Keeps what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.received: list[export.MetricsData] = []
        self._called = threading.Event()

    def called(self) -> bool:
        """Wait until it is called; return False after a second."""
        self._called.clear()
        return self._called.wait(1)

    def export(
        self, metrics_data: export.MetricsData, timeout_millis: float = 0, **_: object
    ) -> export.MetricExportResult:
        self.received.append(metrics_data)
        self._called.set()
        return export.MetricExportResult.SUCCESS

    def force_flush(self, timeout_millis: float = 0) -> bool:
        return True

    def shutdown(self, timeout_millis: float = 0, **_: object) -> None:
        pass


def test_metrics_are_exported_as_points_with_buckets_counted_apart() -> None:
    metrics, collector = Metrics(), Collector()
    metrics.counter(CALLS, route="chat", status="200").inc(2)
    for seconds in (0.003, 0.003, 1000):
        metrics.histogram(LATENCY).observe(seconds)
    MetricsExport(collector, metrics, "gateway", "a").close()
    (data,) = collector.received
    by_name = {m.name: m.data for m in data.resource_metrics[0].scope_metrics[0].metrics}
    calls, latency = by_name[CALLS.removesuffix("_total")], by_name[LATENCY]
    assert isinstance(calls, export.Sum)
    assert isinstance(latency, export.Histogram)
    assert [(p.value, p.attributes) for p in calls.data_points] == [
        (2, {"route": "chat", "status": "200"})
    ]
    (point,) = latency.data_points
    assert point.count == 3
    assert point.bucket_counts[2] == 2
    assert point.bucket_counts[-1] == 1
    assert len(point.bucket_counts) == len(point.explicit_bounds) + 1


def test_counts_are_exported_as_of_the_last_export_if_the_environment_wants_deltas(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name = "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE"
    monkeypatch.setenv(name, "delta")
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "1")
    metrics, collector = Metrics(), Collector()
    calls = metrics.counter(CALLS, route="chat", status="200")
    sending = MetricsExport(collector, metrics, "gateway", "a")
    for _ in range(3):
        calls.inc()
        metrics.histogram(LATENCY).observe(2)
        until(collector.called, "the next export")
    sending.close()
    sums, histograms = points(collector, CALLS.removesuffix("_total")), points(collector, LATENCY)
    assert sum(point.value for point in sums) == 3
    assert (sum(point.count for point in histograms), sum(point.sum for point in histograms)) == (
        3,
        6,
    )
    for earlier, later in pairwise(sums):
        assert later.start_time_unix_nano == earlier.time_unix_nano


def points(collector: Collector, name: str) -> list[Any]:
    """Return the points of a metric, from all exports; each with delta temporality."""
    exported: list[Any] = []
    for data in collector.received:
        for metric in data.resource_metrics[0].scope_metrics[0].metrics:
            if metric.name == name:
                assert isinstance(metric.data, export.Sum | export.Histogram)
                assert metric.data.aggregation_temporality == export.AggregationTemporality.DELTA
                exported += metric.data.data_points
    return exported


class Reading:
    """State of a reader that is behind."""

    behind = 7
    unreadable: Mapping[str, int] = {"control": 2}

    def lags(self) -> Mapping[tuple[str, int], int]:
        return {("control", 0): self.behind, ("sessions", 3): 0}


def test_the_lag_of_readers_is_shown_as_it_is_when_it_is_asked_for() -> None:
    metrics, reading = Metrics(), Reading()
    metrics.watch(reading)
    for lag in (7, 8):
        reading.behind = lag
        text = metrics.text().decode()
        assert f'{CONSUMER_LAG}{{partition="0",topic="control"}} {lag}.0' in text
        assert f'{CONSUMER_LAG}{{partition="3",topic="sessions"}} 0.0' in text
        assert f'{UNREADABLE}{{topic="control"}} 2.0' in text


def test_every_metric_has_a_unit_that_is_exported() -> None:
    metrics, collector = Metrics(), Collector()
    metrics.watch(Reading())
    metrics.counter(CALLS, route="chat", status="200").inc()
    metrics.histogram(LATENCY).observe(1)
    MetricsExport(collector, metrics, "gateway", "a").close()
    (data,) = collector.received
    units = {m.name: m.unit for m in data.resource_metrics[0].scope_metrics[0].metrics}
    assert units[CALLS.removesuffix("_total")] == "{request}"
    assert units[LATENCY] == units["process_cpu_seconds"] == "s"
    assert units["process_resident_memory_bytes"] == "By"
    assert all(spec.unit for spec in METRICS.values())


def test_a_port_of_its_own_is_served_and_recorded_until_the_process_ends(tmp_path: Path) -> None:
    settings = ProcessSettings(data_dir=tmp_path, telemetry=TelemetrySettings(metrics_port=0))
    metrics = Metrics()
    metrics.counter(CALLS, route="chat", status="200").inc()
    output = MetricsOutput(settings, metrics, "gateway", "a")
    (target,) = (tmp_path / "metrics").iterdir()
    [entry] = orjson.loads(target.read_bytes())
    assert entry["labels"] == {"service": "gateway", "process": "a"}
    [address] = entry["targets"]
    shown = http.get(f"http://{address}/metrics")
    assert shown.headers["content-type"].startswith("text/plain")
    assert f'{CALLS}{{route="chat",status="200"}} 1.0' in shown.text
    output.close()
    assert not target.exists()
    with pytest.raises(httpx.ConnectError):
        http.get(f"http://{address}/metrics")


def test_a_port_that_is_taken_is_refused_with_its_setting(tmp_path: Path) -> None:
    with socket.create_server((HOST, 0)) as taken:
        port = taken.getsockname()[1]
        telemetry = TelemetrySettings(metrics_port=port)
        settings = ProcessSettings(data_dir=tmp_path, telemetry=telemetry)
        with pytest.raises(SettingsRejected, match=f"TELEMETRY__METRICS_PORT: {HOST}:{port}"):
            MetricsOutput(settings, Metrics(), "gateway", "a")


def test_the_page_of_metrics_has_every_metric_with_its_unit() -> None:
    page = (ROOT / "runbooks" / "metrics.md").read_text(encoding="utf-8")
    rows = {line.split("|")[1].strip(" `"): line for line in page.splitlines() if "|" in line}
    for name, spec in METRICS.items():
        assert f"`{spec.unit}`" in rows[name]
        assert spec.meaning in rows[name]
