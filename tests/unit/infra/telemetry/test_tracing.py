import random
from collections.abc import Mapping

import pytest
from opentelemetry.sdk.metrics import export
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from infra.settings import TelemetrySettings
from infra.telemetry.metrics import Metrics
from infra.telemetry.metrics_export import MetricsExport, metrics_export
from infra.telemetry.tracing import RandomIds, Telemetry, telemetry

LATENCY = "seamlessflow_gateway_first_reply_seconds"
CALLS = "seamlessflow_gateway_requests_total"


def traced(ratio: float = 1.0) -> tuple[Telemetry, InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    return Telemetry(Resource.create({}), SimpleSpanProcessor(exporter), ratio), exporter


def attributes(span: ReadableSpan) -> Mapping[str, object]:
    return span.attributes or {}


def test_without_an_endpoint_no_span_is_made_and_no_header_is_sent() -> None:
    none = telemetry(TelemetrySettings(), "gateway", "a")
    with none.span("chat", session_id="s", turn_id="t") as span:
        span.set(status=200)
        assert span.headers == ()
    assert none.span("chat") is none.span("generate")
    assert metrics_export(TelemetrySettings(), Metrics(), "gateway", "a") is None


def test_a_span_read_from_headers_is_a_child_in_the_same_trace() -> None:
    tracer, exporter = traced()
    with tracer.span("chat", session_id="s") as parent:
        with tracer.span("process requests", parent.headers, session_id="s") as child:
            pass
        assert [name for name, _ in child.headers] == ["traceparent"]
    inner, outer = exporter.get_finished_spans()
    assert inner.parent is not None
    assert inner.parent.span_id == outer.context.span_id
    assert inner.context.trace_id == outer.context.trace_id
    assert outer.parent is None


def test_attributes_get_their_conventional_names_or_our_prefix() -> None:
    tracer, exporter = traced()
    tracer.span("generate", session_id="s", worker="w0", input_tokens=3).end()
    (span,) = exporter.get_finished_spans()
    assert attributes(span) == {
        "gen_ai.conversation.id": "s",
        "seamlessflow.worker": "w0",
        "gen_ai.usage.input_tokens": 3,
    }


def test_all_requests_of_a_session_are_kept_or_none_in_every_process() -> None:
    gateway, sent = traced(0.5)
    worker, done = traced(0.5)
    for n in range(200):
        for _ in range(2):
            with gateway.span("chat", session_id=f"s{n}") as span:
                worker.span("generate", span.headers, session_id=f"s{n}").end()
    kept = [attributes(s)["gen_ai.conversation.id"] for s in sent.get_finished_spans()]
    assert {kept.count(session) for session in kept} == {2}
    assert 60 < len(set(kept)) < 140
    assert [attributes(s)["gen_ai.conversation.id"] for s in done.get_finished_spans()] == kept


def test_seeding_the_random_module_never_repeats_an_id() -> None:
    ids = RandomIds()
    made = []
    for _ in range(2):
        random.seed(0)
        made += [ids.generate_trace_id(), ids.generate_span_id()]
    assert len(set(made)) == 4


def test_an_error_marks_the_span_as_failed_and_passes_on() -> None:
    tracer, exporter = traced()
    with pytest.raises(ZeroDivisionError), tracer.span("generate"):
        _ = 1 / 0
    (span,) = exporter.get_finished_spans()
    assert not span.status.is_ok


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

    def export(
        self, metrics_data: export.MetricsData, timeout_millis: float = 0, **_: object
    ) -> export.MetricExportResult:
        self.received.append(metrics_data)
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
    found = {m.name: m.data for m in data.resource_metrics[0].scope_metrics[0].metrics}
    calls, latency = found[CALLS.removesuffix("_total")], found[LATENCY]
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
