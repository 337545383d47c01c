"""W3C trace contexts as headers on HTTP requests and Kafka records, and links to them.

This module also chooses which requests are traced, and makes span ids.
"""

import os
from collections.abc import Iterable, Sequence

import xxhash
from opentelemetry.context import Context
from opentelemetry.sdk.trace import SpanLimits
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.trace.sampling import Decision, Sampler, SamplingResult
from opentelemetry.trace import (
    Link,
    Span,
    SpanKind,
    TraceState,
    get_current_span,
    set_span_in_context,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.types import Attributes

from seamlessflow.infra.telemetry.names import ATTRIBUTES
from seamlessflow.schemas.topics import Headers

_CONTEXT_HEADERS = ("traceparent", "tracestate")
_PROPAGATOR = TraceContextTextMapPropagator()


def headers_of(span: Span) -> Headers:
    """Return the headers that name a span."""
    carrier: dict[str, str] = {}
    _PROPAGATOR.inject(carrier, set_span_in_context(span, Context()))
    return [(name, value.encode()) for name, value in carrier.items()]


def context_of(headers: Headers) -> Context:
    """Return the context that headers name; an empty one if they name none or are damaged."""
    carrier = {
        name: value.decode("ascii", "replace")
        for name, value in headers
        if name in _CONTEXT_HEADERS and value is not None
    }
    return _PROPAGATOR.extract(carrier, Context()) if carrier else Context()


def is_sampled(context: Context) -> bool:
    """Return True if the context's span is exported by its process."""
    return get_current_span(context).get_span_context().trace_flags.sampled


def links_to(causes: Iterable[Headers]) -> tuple[list[Link], int]:
    """Return links to the exported spans, and how many links the limit leaves out.

    The limit is OpenTelemetry's: `OTEL_SPAN_LINK_COUNT_LIMIT`, 128 by default.
    """
    contexts = [context_of(headers) for headers in causes]
    links = [
        Link(get_current_span(context).get_span_context())
        for context in contexts
        if is_sampled(context)
    ]
    most = SpanLimits().max_links
    kept = links if most is None else links[:most]
    return kept, len(links) - len(kept)


class RandomIds(IdGenerator):
    """Ids from the operating system, so that seeding `random` never repeats one."""

    def generate_span_id(self) -> int:
        return int.from_bytes(os.urandom(8)) or 1

    def generate_trace_id(self) -> int:
        return int.from_bytes(os.urandom(16)) or 1

    def is_trace_id_random(self) -> bool:
        return True


class BySession(Sampler):
    """Sampler that keeps a share of traces.

    A span with a parent is kept if its parent is, so that no trace has holes. A trace's first span
    that has links is kept if one of them leads to a kept span. Without links its session id's hash
    decides, so that a session's traces are all kept or none.
    """

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
        parent = get_current_span(parent_context).get_span_context()
        session_id = (attributes or {}).get(ATTRIBUTES["session_id"])
        if parent.is_valid:
            keep = parent.trace_flags.sampled
        elif links:
            keep = any(link.context.trace_flags.sampled for link in links)
        elif session_id is not None:
            keep = xxhash.xxh3_64_intdigest(str(session_id).encode()) < self._bound
        else:
            keep = (trace_id & (2**64 - 1)) < self._bound
        decision = Decision.RECORD_AND_SAMPLE if keep else Decision.DROP
        return SamplingResult(decision, attributes, parent.trace_state)

    def get_description(self) -> str:
        return f"BySession{{{self._bound / 2**64}}}"
