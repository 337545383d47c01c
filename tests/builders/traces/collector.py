"""A collector of traces: OTLP over HTTP, in a thread of the test."""

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span


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


def value(attribute: AnyValue) -> object:
    """Return the value of an attribute."""
    kind = attribute.WhichOneof("value")
    if kind == "array_value":
        return [value(part) for part in attribute.array_value.values]
    return getattr(attribute, str(kind))


def attributes(span: Span) -> dict[str, object]:
    """Return the attributes of a span by their names."""
    return {attribute.key: value(attribute.value) for attribute in span.attributes}


def reached(spans: Sequence[Span], trace_id: bytes) -> list[Span]:
    """Return the spans of a trace, and those that lead on from it by a parent or a link alone."""
    trace: dict[bytes, Span] = {}
    new = [span for span in spans if span.trace_id == trace_id]
    while new:
        trace |= {span.span_id: span for span in new}
        new = [span for span in spans if span.span_id not in trace and _from(span, trace)]
    return list(trace.values())


def _from(span: Span, trace: Mapping[bytes, Span]) -> bool:
    return span.parent_span_id in trace or any(link.span_id in trace for link in span.links)
