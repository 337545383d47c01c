"""OpenTelemetry's conventions: its registry of attributes, read from the package that its SDK
brings, and the attributes that spans must have.
"""

import pkgutil
import re
from collections.abc import Iterator, Set
from functools import cache
from pathlib import Path

from opentelemetry.proto.trace.v1.trace_pb2 import Span
from opentelemetry.semconv._incubating import attributes as registry

# The conventions for generative AI have moved to a registry of their own, under the same names.
_ATTRIBUTE = re.compile(r'^[A-Z_]+: Final = "(.+)"\n"""\s*(.*)$', re.MULTILINE)
_REPLACED = ("Deprecated: Replaced", "Deprecated: Removed", "Deprecated: Obsoleted")

_OF_MESSAGES = frozenset(
    {
        "messaging.system",
        "messaging.operation.name",
        "messaging.operation.type",
        "messaging.destination.name",
        "messaging.destination.partition.id",
        "messaging.kafka.offset",
    }
)
_OF_KIND = {
    Span.SPAN_KIND_SERVER: frozenset(
        {
            "http.request.method",
            "http.response.status_code",
            "http.route",
            "url.path",
            "url.scheme",
        }
    ),
    Span.SPAN_KIND_PRODUCER: _OF_MESSAGES,
    Span.SPAN_KIND_CONSUMER: _OF_MESSAGES,
}
_OF_INFERENCE = frozenset({"gen_ai.operation.name", "gen_ai.provider.name", "gen_ai.request.model"})


def required(kind: Span.SpanKind.ValueType, names: Set[str]) -> frozenset[str]:
    """Return the attributes that a span of this kind must have, also by those that it has.

    With those that are required on a condition that holds here. A call of the model is a span of
    the gateway with any attribute of requests or answers; work within it may repeat some of them.
    """
    called = kind == Span.SPAN_KIND_SERVER and any(
        name.startswith(("gen_ai.request.", "gen_ai.response.")) for name in names
    )
    return _OF_KIND.get(kind, frozenset()) | (_OF_INFERENCE if called else frozenset())


@cache
def registered() -> frozenset[str]:
    """Return the names of all attributes that the conventions still ask for."""
    return frozenset(
        name
        for module in pkgutil.iter_modules(registry.__path__)
        for name in _names(Path(registry.__path__[0], f"{module.name}.py"))
    )


def _names(path: Path) -> Iterator[str]:
    for name, meaning in _ATTRIBUTE.findall(path.read_text()):
        if not meaning.startswith(_REPLACED):
            yield name
