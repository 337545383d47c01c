"""One trace a call, from the agent's own through the gateway to Kafka; metrics to the collector."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from seamlessflow.infra.settings import KafkaSettings
from tests import http
from tests.builders.gateway.scripted_manager import ScriptedManager, gateway_process
from tests.waiting import until

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
BODY = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


@contextmanager
def collector() -> Iterator[tuple[str, list[tuple[str, bytes]]]]:
    """Run an HTTP server; return its URL and a list of the paths and bodies posted to it."""
    posted: list[tuple[str, bytes]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            length = int(self.headers["content-length"])
            posted.append((self.path, self.rfile.read(length)))
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", posted
    server.shutdown()
    thread.join()
    server.server_close()


def chat(url: str, headers: Mapping[str, str]) -> None:
    sent = {name.encode(): value.encode("latin-1") for name, value in headers.items()}
    answer = http.post(f"{url}/v1/chat/completions", headers=sent, json=BODY)
    assert answer.status_code == 200


def test_a_call_continues_the_agents_trace_on_kafka(kafka: KafkaSettings) -> None:
    manager = ScriptedManager(kafka)
    try:
        with collector() as (endpoint, posted):
            with gateway_process(kafka, otlp_endpoint=endpoint) as gateway:
                context = {"traceparent": f"00-{TRACE}-00f067aa0ba902b7-01"}
                chat(gateway.url, {**gateway.bearing("traced"), **context})
            sent = manager.headers["traced"]["traceparent"].decode().split("-")
            assert sent[1] == TRACE
            assert sent[2] != "00f067aa0ba902b7"
            until(lambda: len({path for path, _ in posted}) == 2, "traces and metrics")
        spans = b"".join(body for path, body in posted if path == "/v1/traces")
        assert bytes.fromhex(TRACE) in spans
        assert b"traced" in spans and b"gen_ai.conversation.id" in spans
        metrics = b"".join(body for path, body in posted if path == "/v1/metrics")
        assert b"seamlessflow_gateway_requests" in metrics
    finally:
        manager.close()


def test_a_context_that_is_not_utf8_begins_a_trace_of_its_own(kafka: KafkaSettings) -> None:
    manager = ScriptedManager(kafka)
    try:
        with collector() as (endpoint, _), gateway_process(kafka, endpoint) as gateway:
            for name in ("traceparent", "tracestate"):
                chat(gateway.url, {**gateway.bearing("garbage"), name: "\xff\xfe"})
        assert manager.headers["garbage"]["traceparent"].startswith(b"00-")
    finally:
        manager.close()


def test_without_a_collector_no_context_is_sent(kafka: KafkaSettings) -> None:
    manager = ScriptedManager(kafka)
    try:
        with gateway_process(kafka) as gateway:
            chat(gateway.url, gateway.bearing("untraced"))
        assert manager.headers["untraced"] == {}
    finally:
        manager.close()
