"""One OpenTelemetry trace follows a request through every process and back."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import openai
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from infra.settings import KafkaSettings
from tests.e2e.running_system import POLICY, running_system

pytestmark = pytest.mark.kafka
STOP_TIMEOUT_S = 60


@contextmanager
def collector() -> Iterator[tuple[str, list[Span]]]:
    """Yield an OTLP endpoint and the spans it has received."""
    spans: list[Span] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.path == "/v1/traces":
                request = ExportTraceServiceRequest.FromString(body)
                for resource in request.resource_spans:
                    for scope in resource.scope_spans:
                        spans.extend(scope.spans)
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", spans
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_a_request_is_one_trace_through_gateway_manager_and_worker(
    broker: KafkaSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with collector() as (endpoint, spans), running_system(broker, tmp_path) as made:
        monkeypatch.setenv("SEAMLESSFLOW_TELEMETRY__OTLP_ENDPOINT", endpoint)
        made.publish_weights(0, seed=1)
        made.start_gateway()
        made.start("manager", "consumers.trajectories")
        made.start_worker("w0")
        made.give_role("w0", 0)
        made.await_ready()
        body = made.admin("/sessions", session_id="traced", policy=POLICY).json()
        client = openai.OpenAI(base_url=body["base_url"], api_key=body["api_key"], timeout=60)
        client.chat.completions.create(
            model=POLICY, messages=[{"role": "user", "content": "key 7"}], max_tokens=4
        )
        for process in made.processes.values():
            process.send_signal(signal.SIGTERM)
        for name, process in made.processes.items():
            assert process.wait(STOP_TIMEOUT_S) == 0, name

    (call,) = (span for span in spans if span.name == "chat")
    trace = [span for span in spans if span.trace_id == call.trace_id]
    by_id = {span.span_id: span for span in trace}
    generate = next(span for span in trace if span.name == "generate")
    answered = next(span for span in trace if span.name == "process sessions")

    def ancestors(span: Span) -> list[str]:
        parent = by_id.get(span.parent_span_id)
        return [span.name, *(ancestors(parent) if parent is not None else [])]

    assert ancestors(generate) == ["generate", "process requests", "chat"]
    assert ancestors(answered) == ["process sessions", "generate", "process requests", "chat"]
