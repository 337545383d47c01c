"""W3C trace contexts as headers of HTTP requests and of Kafka's records, and links to them."""

from collections.abc import Iterable, Sequence

from opentelemetry.context import Context
from opentelemetry.sdk.trace import SpanLimits
from opentelemetry.trace import Link, Span, get_current_span, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

Headers = Sequence[tuple[str, bytes]]
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
    """Return True if the span of the context is exported by its process."""
    return get_current_span(context).get_span_context().trace_flags.sampled


def links_to(causes: Iterable[Headers]) -> tuple[list[Link], int]:
    """Return links to the spans that are exported, and the number of those left out.

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
