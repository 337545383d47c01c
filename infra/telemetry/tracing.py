"""A process's traces, named as OpenTelemetry's semantic conventions ask.

A trace follows an agent's request through every process. If this project runs a task, the task's
calls are part of the task's trace. From there links lead on: a trajectory's span links to its
turns' spans, and a step's span to its trajectories' spans. The context travels as W3C headers, over
HTTP and with Kafka's records. Spans are passed as arguments, never by ambient context, so that they
work across threads and awaits. Without an endpoint no span is made, and a request costs almost
nothing.
"""

from collections.abc import Collection, Mapping
from types import TracebackType
from typing import Protocol

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Span as OtelSpan
from opentelemetry.trace import SpanKind, Status, StatusCode
from opentelemetry.util.types import AttributeValue

from seamlessflow.infra.settings import TelemetrySettings
from seamlessflow.infra.telemetry.contexts import (
    BySession,
    RandomIds,
    context_of,
    headers_of,
    is_sampled,
    links_to,
)
from seamlessflow.infra.telemetry.environment import endpoint, forget_empty, resource, sample_ratio
from seamlessflow.infra.telemetry.names import ATTRIBUTES, SCHEMA_URL, SpanName
from seamlessflow.schemas.topics import Headers

_KAFKA = "kafka"


class ReceivedRecord(Protocol):
    """A record's place in the log, and its headers."""

    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def key(self) -> str | None: ...
    @property
    def headers(self) -> Headers: ...


class Span:
    """Interval of work; `end` or its `with` block ends it. Does nothing if it is not traced."""

    __slots__ = ("_span", "headers")

    def __init__(self, span: OtelSpan | None) -> None:
        self._span = span
        self.headers: Headers = () if span is None else headers_of(span)
        """Headers for a record: the span in which it is read becomes a child of this one."""

    @property
    def recording(self) -> bool:
        """True if attributes are kept; otherwise they need not be computed."""
        return self._span is not None

    def set(self, **attributes: AttributeValue) -> None:
        """Add attributes."""
        if self._span is not None:
            self._span.set_attributes(_named(attributes))

    def fail(self, reason: str, error: str = "_OTHER") -> None:
        """Mark it as failed; `error` is one of few words, by which failures are counted."""
        if self._span is not None:
            self.set(error=error)
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
            self.fail(repr(error), type(error).__name__)
        self.end()


_NOTHING = Span(None)


class Telemetry:
    """Factory for spans. Thread-safe."""

    def __init__(
        self,
        resource: Resource,
        processor: SpanProcessor | None,
        ratio: float,
        prefix: str = "",
        groups: Mapping[str, str] | None = None,
    ) -> None:
        self._prefix = prefix
        self._groups = groups or {}
        self._provider: TracerProvider | None = None
        if processor is not None:
            self._provider = TracerProvider(BySession(ratio), resource, id_generator=RandomIds())
            self._provider.add_span_processor(processor)
            self._tracer = self._provider.get_tracer("seamlessflow", schema_url=SCHEMA_URL)

    @property
    def enabled(self) -> bool:
        """True if spans are made at all."""
        return self._provider is not None

    def root(
        self, name: SpanName, *, session_id: str | None = None, **attributes: AttributeValue
    ) -> Span:
        """Begin a trace's first span."""
        if session_id is not None:
            attributes["session_id"] = session_id
        return self._begin(name, SpanKind.INTERNAL, (), attributes)

    def child(self, name: SpanName, headers: Headers, **attributes: AttributeValue) -> Span:
        """Begin work within a process that belongs to the trace that `headers` name, if any."""
        if not headers:
            return _NOTHING
        return self._begin(name, SpanKind.INTERNAL, headers, attributes)

    def serve(
        self, method: str, route: str, headers: Headers, session_id: str, **more: AttributeValue
    ) -> Span:
        """Begin to serve an HTTP request, in the trace that its own `headers` name, or a new one.

        It carries the sampled answer's attributes too: no other span sees the client.
        """
        if self._provider is None:
            return _NOTHING
        attributes = {"method": method, "route": route, "session_id": session_id, **more}
        return self._begin(f"{method} {route}", SpanKind.SERVER, headers, attributes)

    def send(
        self,
        topic: str,
        headers: Headers,
        key: str | bytes | None = None,
        causes: Collection[Headers] = (),
    ) -> Span:
        """Begin to send a record to a topic, within the trace that `headers` name, if any.

        It links to the spans that `causes` name: the spans of its source records.
        """
        if self._provider is None or not (headers or causes):
            return _NOTHING
        name = self._prefix + topic
        attributes = _messaging("send", name, key)
        return self._begin(f"send {name}", SpanKind.PRODUCER, headers, attributes, causes)

    def process(self, received: ReceivedRecord, **more: AttributeValue) -> Span:
        """Begin to act on a record, within the trace that its headers name, if any."""
        if not received.headers or self._provider is None:
            return _NOTHING
        topic = self._prefix + received.topic
        attributes: dict[str, AttributeValue] = {
            **_messaging("process", topic, received.key),
            "partition": str(received.partition),
            "offset": received.offset,
            **more,
        }
        if received.topic in self._groups:
            attributes["consumer_group"] = self._prefix + self._groups[received.topic]
        return self._begin(f"process {topic}", SpanKind.CONSUMER, received.headers, attributes)

    def process_batch(
        self, topic: str, causes: Collection[Headers], messages: int, **more: AttributeValue
    ) -> Span:
        """Begin to act on so many records from a topic at once.

        It is a trace's first span, with links to the spans that `causes` name.
        """
        if self._provider is None:
            return _NOTHING
        name = self._prefix + topic
        attributes = {**_messaging("process", name, None), "messages": messages, **more}
        return self._begin(f"process {name}", SpanKind.CONSUMER, (), attributes, causes)

    def close(self) -> None:
        """Export the remaining spans."""
        if self._provider is not None:
            self._provider.shutdown()

    def _begin(
        self,
        name: str,
        kind: SpanKind,
        headers: Headers,
        attributes: Mapping[str, AttributeValue],
        causes: Collection[Headers] = (),
    ) -> Span:
        if self._provider is None:
            return _NOTHING
        context = context_of(headers)
        links, left_out = links_to(causes) if causes else ([], 0)
        if links and not is_sampled(context):
            context = Context()  # a parent that is not exported must not hide this span
        elif not context and (headers or kind is SpanKind.PRODUCER) and kind is not SpanKind.SERVER:
            return _NOTHING
        if left_out:
            attributes = {**attributes, "links_left_out": left_out}
        span = self._tracer.start_span(name, context, kind, _named(attributes), links)
        return Span(span) if span.is_recording() else _NOTHING


def telemetry(
    settings: TelemetrySettings,
    service: str,
    instance: str,
    prefix: str = "",
    groups: Mapping[str, str] | None = None,
) -> Telemetry:
    """Return a process's telemetry by its settings. Raises `SettingsRejected`.

    `prefix` stands before topic and group names on the cluster. `groups` has, by topic, the Kafka
    consumer groups that the process belongs to.
    """
    forget_empty()
    url = endpoint(settings, "traces")
    processor = None
    if url is not None:
        processor = BatchSpanProcessor(OTLPSpanExporter(url))
    ratio = sample_ratio(settings)
    return Telemetry(resource(service, instance), processor, ratio, prefix, groups)


def _messaging(operation: str, topic: str, key: str | bytes | None) -> dict[str, AttributeValue]:
    attributes: dict[str, AttributeValue] = {
        "messaging": _KAFKA,
        "messaging_operation": operation,
        "messaging_type": operation,
        "topic": topic,
    }
    if key is not None:
        attributes["key"] = key if isinstance(key, str) else key.decode("utf-8", "replace")
    return attributes


def _named(attributes: Mapping[str, AttributeValue]) -> dict[str, AttributeValue]:
    return {
        ATTRIBUTES.get(name, f"seamlessflow.{name}"): value for name, value in attributes.items()
    }
