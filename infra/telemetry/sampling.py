"""Choice of the requests that are traced, and ids of spans."""

import os
from collections.abc import Sequence

import xxhash
from opentelemetry.context import Context
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.trace.sampling import Decision, Sampler, SamplingResult
from opentelemetry.trace import Link, SpanKind, TraceState, get_current_span
from opentelemetry.util.types import Attributes

from seamlessflow.infra.telemetry.names import ATTRIBUTES


class RandomIds(IdGenerator):
    """Ids from the operating system, so that seeding `random` never repeats one."""

    def generate_span_id(self) -> int:
        return int.from_bytes(os.urandom(8)) or 1

    def generate_trace_id(self) -> int:
        return int.from_bytes(os.urandom(16)) or 1

    def is_trace_id_random(self) -> bool:
        return True


class BySession(Sampler):
    """Sampler of a share of traces.

    A span with a parent is kept if its parent is, so that no trace has holes. The first span of a
    trace is kept if it links to a span that is kept. Otherwise the hash of its session's id
    decides, so that all traces of a session are kept or none.
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
