"""Spans of a process: their names, kinds, parents and attributes."""

import random
from collections.abc import Mapping
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.semconv.schemas import Schemas
from opentelemetry.trace import SpanKind

from seamlessflow.infra.kafka.client import Received
from seamlessflow.infra.settings import TelemetrySettings
from seamlessflow.infra.telemetry.contexts import RandomIds
from seamlessflow.infra.telemetry.instruments import metrics_export
from seamlessflow.infra.telemetry.metrics import Metrics
from seamlessflow.infra.telemetry.names import PROVIDER
from seamlessflow.infra.telemetry.tracing import Telemetry, telemetry
from seamlessflow.schemas.records import TurnCancelled
from seamlessflow.schemas.topics import Headers

ROUTE = "/v1/chat/completions"
AGENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7"


def traced(ratio: float = 1.0) -> tuple[Telemetry, InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    return Telemetry(Resource.create({}), SimpleSpanProcessor(exporter), ratio), exporter


def attributes(span: ReadableSpan) -> Mapping[str, object]:
    return span.attributes or {}


def received(headers: Headers) -> Received:
    record = TurnCancelled(session_id="s", epoch=0, at_ms=0, turn_id="t", reason="client_gone")
    return Received("requests", 3, 17, 0, "s", headers, record)


def test_without_an_endpoint_no_span_is_made_and_no_header_is_sent() -> None:
    none = telemetry(TelemetrySettings(), "gateway", "a")
    with none.serve("POST", ROUTE, (), "s") as span:
        span.set(status=200)
        assert span.headers == ()
        assert not span.recording
    assert none.root("train step") is none.process(received([("traceparent", b"x")]))
    assert metrics_export(TelemetrySettings(), Metrics(), "gateway", "a") is None


def test_a_request_is_followed_from_http_through_kafka_and_back() -> None:
    tracer, exporter = traced()
    with tracer.serve("POST", ROUTE, (), "s") as call, tracer.send("requests", call.headers) as out:
        out.set(partition="3", offset=17)
        with tracer.process(received(out.headers)) as taken:
            tracer.child("generate", taken.headers).end()
    done = {span.name: span for span in exporter.get_finished_spans()}
    chain = ["generate", "process requests", "send requests", f"POST {ROUTE}"]
    for name, parent in pairwise(chain):
        link = done[name].parent
        assert link is not None
        assert link.span_id == done[parent].context.span_id
    assert [done[name].kind for name in chain] == [
        SpanKind.INTERNAL,
        SpanKind.CONSUMER,
        SpanKind.PRODUCER,
        SpanKind.SERVER,
    ]
    assert attributes(done["process requests"]) == {
        "messaging.system": "kafka",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": "requests",
        "messaging.destination.partition.id": "3",
        "messaging.kafka.offset": 17,
        "messaging.kafka.message.key": "s",
    }


def test_topics_and_groups_have_the_names_that_they_have_on_the_cluster() -> None:
    exporter = InMemorySpanExporter()
    processor, groups = SimpleSpanProcessor(exporter), {"requests": "managers"}
    tracer = Telemetry(Resource.create({}), processor, 1.0, "team.", groups)
    with tracer.root("run task") as task:
        tracer.send("requests", task.headers).end()
        tracer.process(received(task.headers)).end()
    sent, processed, _ = exporter.get_finished_spans()
    assert (sent.name, processed.name) == ("send team.requests", "process team.requests")
    for span in (sent, processed):
        assert attributes(span)["messaging.destination.name"] == "team.requests"
    assert "messaging.consumer.group.name" not in attributes(sent)
    assert attributes(processed)["messaging.consumer.group.name"] == "team.managers"


def test_an_attribute_outside_the_conventions_gets_our_prefix() -> None:
    tracer, exporter = traced()
    tracer.root("run task", session_id="s", worker="w0").end()
    (span,) = exporter.get_finished_spans()
    assert attributes(span) == {"gen_ai.conversation.id": "s", "seamlessflow.worker": "w0"}


def test_spans_name_the_version_of_the_conventions_that_their_names_are_of() -> None:
    tracer, exporter = traced()
    tracer.root("run task", session_id="s", operation="invoke_agent", provider=PROVIDER).end()
    [span] = exporter.get_finished_spans()
    scope = span.instrumentation_scope
    assert scope is not None and scope.schema_url in {schema.value for schema in Schemas}
    assert attributes(span)["gen_ai.operation.name"] == "invoke_agent"
    assert attributes(span)["gen_ai.provider.name"] == "seamlessflow"


def test_all_requests_of_a_session_are_kept_or_none_in_every_process() -> None:
    gateway, sent = traced(0.5)
    worker, done = traced(0.5)
    for n in range(200):
        for _ in range(2):
            with gateway.serve("POST", ROUTE, (), f"s{n}") as span:
                worker.process(received(span.headers), session_id=f"s{n}").end()
    kept = [attributes(s)["gen_ai.conversation.id"] for s in sent.get_finished_spans()]
    assert {kept.count(session) for session in kept} == {2}
    assert 60 < len(set(kept)) < 140
    assert [attributes(s)["gen_ai.conversation.id"] for s in done.get_finished_spans()] == kept


@pytest.mark.parametrize(("flags", "kept"), [("01", 1), ("00", 0)])
@pytest.mark.parametrize("ratio", [0.0, 1.0])
def test_an_agent_decides_for_its_own_trace(flags: str, kept: int, ratio: float) -> None:
    tracer, exporter = traced(ratio)
    headers = [("traceparent", f"{AGENT}-{flags}".encode())]
    with tracer.serve("POST", ROUTE, headers, "s") as call:
        tracer.process(received(call.headers)).end()
    assert len(exporter.get_finished_spans()) == 2 * kept


def test_a_record_without_a_trace_begins_none() -> None:
    tracer, exporter = traced()
    for headers in ((), (("source-topic", b"requests"),)):
        tracer.process(received(headers)).end()
        tracer.child("generate", headers).end()
        tracer.send("prompts", headers).end()
    assert not exporter.get_finished_spans()


@given(st.none() | st.binary(), st.none() | st.binary())
def test_damaged_headers_begin_no_trace_and_raise_nothing(
    parent: bytes | None, state: bytes | None
) -> None:
    tracer, exporter = traced()
    headers: Headers = [("traceparent", parent), ("tracestate", state)]  # type: ignore[list-item]
    tracer.process(received(headers)).end()
    assert not exporter.get_finished_spans()
    tracer.serve("POST", ROUTE, headers, "s").end()
    assert len(exporter.get_finished_spans()) == 1


def test_a_step_links_to_the_spans_of_what_it_trains() -> None:
    tracer, exporter = traced()
    sent = [tracer.root("run task").headers for _ in range(3)]
    with tracer.process_batch("trajectories", sent, 4, step=2) as batch:
        tracer.child("train step", batch.headers, step=2).end()
    step, done = exporter.get_finished_spans()
    assert (done.name, done.kind) == ("process trajectories", SpanKind.CONSUMER)
    assert attributes(done)["messaging.batch.message_count"] == 4
    assert [b"%032x" % link.context.trace_id for link in done.links] == [
        dict(headers)["traceparent"].split(b"-")[1] for headers in sent
    ]
    assert step.parent is not None
    assert step.parent.span_id == done.context.span_id


def test_links_are_as_many_as_the_limit_allows_and_the_others_are_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OTEL_SPAN_LINK_COUNT_LIMIT", "5")
    tracer, exporter = traced()
    sent = [tracer.root("run task").headers for _ in range(12)]
    tracer.process_batch("trajectories", sent, 12).end()
    (done,) = exporter.get_finished_spans()
    assert len(done.links) == 5
    assert done.dropped_links == 0
    assert attributes(done)["seamlessflow.links_left_out"] == 7


def test_what_is_made_of_a_traced_record_is_traced_whatever_the_ratio_and_its_parent() -> None:
    tracer, exporter = traced(0.0)
    kept, left = ([("traceparent", f"{AGENT}-{flags}".encode())] for flags in ("01", "00"))
    tracer.process_batch("trajectories", [left, kept], 2).end()
    tracer.send("trajectories", left, "g", [kept]).end()
    batch, sent = exporter.get_finished_spans()
    for span in (batch, sent):
        assert [link.context.trace_flags.sampled for link in span.links] == [True]
        assert span.parent is None
    tracer.process_batch("trajectories", [left], 1).end()
    tracer.send("trajectories", (), "g", [left]).end()
    tracer.send("trajectories", left, "g", [left]).end()
    assert len(exporter.get_finished_spans()) == 2


def test_seeding_the_random_module_never_repeats_an_id() -> None:
    ids = RandomIds()
    made = []
    for _ in range(2):
        random.seed(0)
        made += [ids.generate_trace_id(), ids.generate_span_id()]
    assert len(set(made)) == 4


def test_an_error_marks_the_span_as_failed_and_passes_on() -> None:
    tracer, exporter = traced()
    with pytest.raises(ZeroDivisionError), tracer.root("train step"):
        _ = 1 / 0
    (span,) = exporter.get_finished_spans()
    assert not span.status.is_ok
    assert attributes(span) == {"error.type": "ZeroDivisionError"}
