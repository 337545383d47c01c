"""Traces of a process.

Each agent request is one trace. Its context travels as W3C headers of Kafka records:
`span(headers=)` reads them, `Span.headers` passes them on. The hash of a session's id decides
whether its requests are traced, so all or none of its turns are. Without `otlp_endpoint` no span is
made and `span` costs almost nothing. Spans are passed as arguments, never by ambient context, so
that they work across threads and awaits. Only this module and `metrics_export.py` import
OpenTelemetry.
"""

import os
from collections.abc import Mapping, Sequence
from types import TracebackType

import xxhash
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.trace.sampling import Decision, Sampler, SamplingResult
from opentelemetry.trace import (
    Link,
    SpanKind,
    Status,
    StatusCode,
    TraceState,
    get_current_span,
    set_span_in_context,
)
from opentelemetry.trace import Span as OtelSpan
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.types import Attributes, AttributeValue

from infra.settings import TelemetrySettings
from infra.telemetry.names import ATTRIBUTES, SpanName

Headers = Sequence[tuple[str, bytes]]
_CONTEXT_HEADERS = ("traceparent", "tracestate")
_PROPAGATOR = TraceContextTextMapPropagator()


class Span:
    """Interval of work; `end` or its `with` block ends it. Does nothing if it is not traced."""

    __slots__ = ("_span", "headers")

    def __init__(self, span: OtelSpan | None) -> None:
        self._span = span
        self.headers: Headers = () if span is None else _headers(span)
        """Headers for a record: the span of the process that reads it becomes a child of this."""

    def set(self, **attributes: AttributeValue) -> None:
        """Add attributes."""
        if self._span is not None:
            self._span.set_attributes(_named(attributes))

    def fail(self, reason: str) -> None:
        """Mark it as failed."""
        if self._span is not None:
            self._span.set_status(Status(StatusCode.ERROR, reason))

    def end(self) -> None:
        """End it; later calls do nothing."""
        if self._span is not None:
            self._span.end()
            self._span = None

    def __enter__(self) -> "Span":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is not None:
            self.fail(repr(error))
        self.end()


_NOTHING = Span(None)


class Telemetry:
    """Factory of spans. Thread-safe."""

    def __init__(self, resource: Resource, processor: SpanProcessor | None, ratio: float) -> None:
        self._provider: TracerProvider | None = None
        if processor is not None:
            self._provider = TracerProvider(_BySession(ratio), resource, id_generator=RandomIds())
            self._provider.add_span_processor(processor)
            self._tracer = self._provider.get_tracer("seamlessflow")

    def span(
        self,
        name: SpanName,
        headers: Headers = (),
        *,
        session_id: str | None = None,
        **attributes: AttributeValue,
    ) -> Span:
        """Begin a span: a child of the one that `headers` name, or else the root of a new trace."""
        if self._provider is None:
            return _NOTHING
        if session_id is not None:
            attributes["session_id"] = session_id
        context = _context(headers)
        kind = SpanKind.CONSUMER if headers else SpanKind.SERVER
        span = self._tracer.start_span(name, context, kind, _named(attributes))
        return Span(span) if span.is_recording() else _NOTHING

    def close(self) -> None:
        """Export the remaining spans."""
        if self._provider is not None:
            self._provider.shutdown()


def telemetry(settings: TelemetrySettings, service: str, instance: str) -> Telemetry:
    """Return the telemetry of a process by its settings."""
    processor = None
    if settings.otlp_endpoint is not None:
        exporter = OTLPSpanExporter(f"{settings.otlp_endpoint.rstrip('/')}/v1/traces")
        processor = BatchSpanProcessor(exporter)
    return Telemetry(resource(service, instance), processor, settings.sample_ratio)


class RandomIds(IdGenerator):
    """Ids from the operating system, so that seeding `random` never repeats one."""

    def generate_span_id(self) -> int:
        return int.from_bytes(os.urandom(8)) or 1

    def generate_trace_id(self) -> int:
        return int.from_bytes(os.urandom(16)) or 1

    def is_trace_id_random(self) -> bool:
        return True


class _BySession(Sampler):
    """Sampler of a share of sessions, by the same hash in every process, or else by the parent."""

    def __init__(self, ratio: float) -> None:
        self._bound = round(ratio * 2**64)

    def should_sample(
        self,
        parent_context: Context | None,
        trace_id: int,
        name: str,
        kind: SpanKind | None = None,
        attributes: Attributes = None,
        links: Sequence[Link] | None = None,
        trace_state: TraceState | None = None,
    ) -> SamplingResult:
        session_id = (attributes or {}).get(ATTRIBUTES["session_id"])
        parent = get_current_span(parent_context).get_span_context()
        if session_id is not None:
            keep = xxhash.xxh3_64_intdigest(str(session_id).encode()) < self._bound
        elif parent.is_valid:
            keep = parent.trace_flags.sampled
        else:
            keep = (trace_id & (2**64 - 1)) < self._bound
        decision = Decision.RECORD_AND_SAMPLE if keep else Decision.DROP
        return SamplingResult(decision, attributes, parent.trace_state)

    def get_description(self) -> str:
        return f"BySession{{{self._bound / 2**64}}}"


def resource(service: str, instance: str) -> Resource:
    """Return the attributes by which a collector tells processes apart."""
    return Resource.create(
        {"service.name": f"seamlessflow-{service}", "service.instance.id": instance}
    )


def _headers(span: OtelSpan) -> Headers:
    carrier: dict[str, str] = {}
    _PROPAGATOR.inject(carrier, set_span_in_context(span, Context()))
    return [(name, value.encode()) for name, value in carrier.items()]


def _context(headers: Headers) -> Context:
    carrier = {name: value.decode() for name, value in headers if name in _CONTEXT_HEADERS}
    return _PROPAGATOR.extract(carrier, Context()) if carrier else Context()


def _named(attributes: Mapping[str, AttributeValue]) -> dict[str, AttributeValue]:
    return {
        ATTRIBUTES.get(name, f"seamlessflow.{name}"): value for name, value in attributes.items()
    }
