"""One OpenTelemetry trace follows a request through every process and back."""

import asyncio
import re
import signal

import openai
import pytest
from openai.types.chat import ChatCompletionMessageParam
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from seamlessflow.infra.settings import KafkaSettings, TelemetrySettings
from seamlessflow.infra.telemetry.tracing import telemetry
from seamlessflow.producers.agents.gateway_client.client import GatewayClient
from seamlessflow.producers.agents.gateway_client.ending import CloseCall
from seamlessflow.schemas.records import Trajectory
from tests.builders.records.tasks import task as a_task
from tests.builders.traces.collector import attributes, collector
from tests.e2e.conventions import registered, required
from tests.e2e.running_system import POLICY, RunningSystem, running_system

pytestmark = pytest.mark.kafka
TASK = "run task"
CALL = "POST /v1/chat/completions"
EXPECTED = {
    "http.request.method": "POST",
    "http.route": "/v1/chat/completions",
    "http.response.status_code": 200,
    "url.scheme": "http",
    "gen_ai.operation.name": "chat",
    "gen_ai.provider.name": "seamlessflow",
    "gen_ai.request.model": POLICY,
    "gen_ai.response.model": POLICY,
    "gen_ai.request.max_tokens": 4,
    "gen_ai.conversation.id": "traced",
}
STOP_TIMEOUT_S = 60


KINDS = {
    "POST": Span.SPAN_KIND_SERVER,
    "send": Span.SPAN_KIND_PRODUCER,
    "process": Span.SPAN_KIND_CONSUMER,
}


def short(span: Span) -> str:
    """Return the name of a span without the prefix of the test's topics."""
    return re.sub(r" test-[0-9a-f]+\.", " ", span.name)


@pytest.fixture(scope="module")
def traced_spans(broker: KafkaSettings, tmp_path_factory: pytest.TempPathFactory) -> list[Span]:
    """Spans of one session: opened within `run task`, two calls, reward and close."""
    directory = tmp_path_factory.mktemp("trace")
    with (
        collector() as (endpoint, spans),
        pytest.MonkeyPatch.context() as patch,
        running_system(broker, directory) as made,
    ):
        patch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
        made.publish_weights(0, seed=1)
        made.start_gateway()
        made.start("manager", "seamlessflow.consumers.trajectories")
        made.start_worker("w0")
        made.give_role("w0", 0)
        made.await_ready()
        asyncio.run(one_task(made))
        made.expect(Trajectory)
        for process in made.processes.values():
            process.send_signal(signal.SIGTERM)
        for name, process in made.processes.items():
            assert process.wait(STOP_TIMEOUT_S) == 0, name
    return spans


async def one_task(made: RunningSystem) -> None:
    tracer = telemetry(TelemetrySettings(), "agents", "test")
    task = a_task(task_id="t", group_id="g", policy=POLICY)
    with tracer.root("run task", session_id="traced") as span:
        gateway = GatewayClient(made.url, made.admin_key, 60).traced(span.headers)
        opened = await gateway.open("traced", task, "agent", 600, 60)
        assert opened is not None
        client = openai.AsyncOpenAI(
            base_url=opened.base_url, api_key=opened.api_key, timeout=60, max_retries=0
        )
        asked: list[ChatCompletionMessageParam] = [{"role": "user", "content": "key 7"}]
        await client.chat.completions.create(model=POLICY, messages=asked, max_tokens=4)
        async with await client.chat.completions.create(
            model=POLICY, messages=asked, max_tokens=4, stream=True
        ) as chunks:
            async for _ in chunks:
                pass
        with pytest.raises(openai.BadRequestError):
            await client.chat.completions.create(model=POLICY, messages=[])
        await client.close()
        await gateway.close("traced", CloseCall("complete", "", "policy"))
        await client.close()
        gateway.disconnect()
    tracer.close()


def test_the_calls_of_a_task_are_one_trace_through_every_process(traced_spans: list[Span]) -> None:
    (task,) = (span for span in traced_spans if span.name == "run task")
    trace = [span for span in traced_spans if span.trace_id == task.trace_id]
    by_id = {span.span_id: span for span in trace}

    def ancestors(span: Span) -> list[str]:
        parent = by_id.get(span.parent_span_id)
        return [short(span), *(ancestors(parent) if parent is not None else [])]

    sampled = ["process prompts", "send prompts", "process requests", "send requests", CALL, TASK]
    generated = [span for span in trace if span.name == "generate"]
    assert [ancestors(span) for span in generated] == [["generate", *sampled]] * 2
    answered = [ancestors(span) for span in trace if short(span) == "process replies"]
    way_back = ["process replies", "send replies", "process sessions", "send sessions", "generate"]
    assert [*way_back, *sampled] in answered
    assert ancestors(next(span for span in trace if span.name == "POST /sessions"))[-1] == TASK


def test_the_trajectory_links_to_the_turns_that_it_was_made_from(traced_spans: list[Span]) -> None:
    by_id = {span.span_id: span for span in traced_spans}
    (sent,) = (span for span in traced_spans if short(span) == "send trajectories")
    linked = [by_id[link.span_id] for link in sent.links]
    assert [short(span) for span in linked] == ["send sessions"] * 2
    assert {by_id[span.parent_span_id].name for span in linked} == {"generate"}
    assert attributes(sent)["messaging.kafka.offset"] == 0


def test_no_span_of_a_task_has_lost_its_parent(traced_spans: list[Span]) -> None:
    span_ids = {span.span_id for span in traced_spans}
    lost = [s.name for s in traced_spans if s.parent_span_id and s.parent_span_id not in span_ids]
    assert lost == []
    roots = {span.name for span in traced_spans if not span.parent_span_id}
    assert roots <= {"run task", "load weights"}


def test_names_kinds_and_attributes_are_those_of_the_conventions(
    traced_spans: list[Span],
) -> None:
    unknown = {name for span in traced_spans for name in attributes(span)} - registered()
    assert {name for name in unknown if not name.startswith("seamlessflow.")} == set()
    for span in traced_spans:
        kind = KINDS.get(span.name.split()[0], Span.SPAN_KIND_INTERNAL)
        assert span.kind == kind, span.name
        values = attributes(span)
        assert required(kind, values.keys()) - values.keys() == set(), span.name
        if kind in (Span.SPAN_KIND_PRODUCER, Span.SPAN_KIND_CONSUMER):
            assert str(_topic(values)).startswith("test-"), "the prefix of the topics is missing"
            assert span.name == f"{values['messaging.operation.name']} {_topic(values)}"
            assert isinstance(values["messaging.destination.partition.id"], str)
            assert isinstance(values["messaging.kafka.offset"], int)


def test_the_span_that_the_client_sees_tells_what_was_asked_and_sampled(
    traced_spans: list[Span],
) -> None:
    plain, streamed, refused = (attributes(s) for s in traced_spans if s.name == CALL)
    for call in (plain, streamed):
        assert {name: call[name] for name in call.keys() & EXPECTED.keys()} == EXPECTED
        assert call["gen_ai.usage.input_tokens"] > 0  # type: ignore[operator]
        assert 0 < call["gen_ai.usage.output_tokens"] <= 4  # type: ignore[operator]
        assert call["gen_ai.response.finish_reasons"] in (["stop"], ["length"])
    assert [call["gen_ai.request.stream"] for call in (plain, streamed)] == [False, True]
    assert refused["http.response.status_code"] == 400
    assert refused["error.type"] == "400"


def _topic(values: dict[str, object]) -> object:
    return values["messaging.destination.name"]
