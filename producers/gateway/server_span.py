"""An HTTP request's OpenTelemetry span, with attributes of the sampled answer."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from seamlessflow.infra.errors import SeamlessFlowError
from seamlessflow.infra.telemetry.names import PROVIDER
from seamlessflow.infra.telemetry.tracing import Span, Telemetry
from seamlessflow.producers.gateway.dialects.canonical import CanonicalRequest
from seamlessflow.producers.gateway.errors import ApiError
from seamlessflow.producers.gateway.exchange import Exchange, key_of
from seamlessflow.schemas.records import ReplyFinished
from seamlessflow.schemas.topics import Headers

_OK = 200
_SERVER_ERROR = 500
_OPERATIONS = {"openai.completions": "text_completion", "vllm.generate": "text_completion"}
_HEADERS = ("traceparent", "tracestate")
_TRACE = re.compile(rb"00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")


@contextmanager
def served(telemetry: Telemetry, exchange: Exchange, session_id: str) -> Iterator[Span]:
    """Yield the span for a request in this session, and end it with the answer's status.

    Its parent is the span that the client's `traceparent` names. Otherwise it is the span in which
    the session was opened, which the session's key names.
    """
    headers = trace_headers(exchange.headers) if telemetry.enabled else ()
    span = telemetry.serve(
        exchange.method, exchange.route, headers, session_id, path=exchange.path, scheme="http"
    )
    try:
        yield span
    except SeamlessFlowError as error:
        _fail(span, exchange.status, error)
        raise
    finally:
        if exchange.status:
            span.set(status=exchange.status)
        span.end()


def trace_headers(headers: Mapping[bytes, bytes]) -> Headers:
    """Return the headers that name a request span's parent; none if it has no parent."""
    pairs = [(name, headers[name.encode()]) for name in _HEADERS if name.encode() in headers]
    if pairs:
        return pairs
    in_key = key_of(headers).rpartition(b".")[2]
    return [(_HEADERS[0], in_key)] if _TRACE.fullmatch(in_key) else ()


def opened_in(headers: Headers) -> str:
    """Return the `traceparent` among `headers`, or "" if it is not well-formed."""
    parent = next((value for name, value in headers if name == _HEADERS[0]), b"")
    return parent.decode() if _TRACE.fullmatch(parent) else ""


def describe_request(span: Span, turn_id: str, request: CanonicalRequest) -> None:
    """Add the client's request to the span."""
    if not span.recording:
        return
    sampling = request.sampling
    asked = {
        "max_tokens": sampling.max_tokens,
        "seed": sampling.seed,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
    }
    span.set(
        operation=_OPERATIONS.get(request.dialect, "chat"),
        provider=PROVIDER,
        model=request.model,
        turn_id=turn_id,
        choices=request.choices,
        stream=request.stream,
        **{name: value for name, value in asked.items() if value is not None},
    )


def describe_answer(
    span: Span, request: CanonicalRequest, answers: Sequence[ReplyFinished]
) -> None:
    """Add the sampled answer to the span; token counts are sums over all choices."""
    if not span.recording:
        return
    span.set(
        answered_by=request.model,
        finish_reasons=[answer.finish_reason or "" for answer in answers],
        input_tokens=answers[0].prompt_tokens,
        output_tokens=sum(answer.completion_tokens for answer in answers),
        reasoning_tokens=sum(answer.reasoning_tokens or 0 for answer in answers),
    )


def _fail(span: Span, status: int, error: SeamlessFlowError) -> None:
    """Mark the span with an error. A client's error does not count as the server's failure."""
    if isinstance(error, ApiError) and not status:
        span.set(status=error.status)
    code = error.status if isinstance(error, ApiError) else status
    if code >= _SERVER_ERROR or status == _OK:
        span.fail(str(error), str(code) if code else type(error).__name__)
    else:
        span.set(error=str(code) if code else type(error).__name__)
