"""Options and types that all Kafka clients of this project share.

Only modules of this package import `confluent_kafka`. Callers give topic names without the
configured prefix.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, KafkaException

from infra.errors import SettingsRejected
from infra.kafka import log
from infra.settings import KafkaSettings, SecretStr
from schemas.records import Record

C = TypeVar("C")
Headers = Sequence[tuple[str, bytes]]
Partition = tuple[str, int]
BEGINNING: int = OFFSET_BEGINNING
END: int = OFFSET_END
LARGEST_RECORD_BYTES = 32 * 1024 * 1024


class Received(NamedTuple):
    """Decoded record with its place in the log."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: str | None
    headers: Headers
    record: Record


class SendSpan(Protocol):
    """The trace of one record, until it is on the log."""

    @property
    def headers(self) -> Headers:
        """Headers that take the place of the record's own; empty if it is not traced."""
        ...

    def set(self, **attributes: Any) -> None:
        """Add attributes."""
        ...

    def fail(self, reason: str) -> None:
        """Mark it as failed."""
        ...

    def end(self) -> None:
        """End it."""
        ...


TraceSend = Callable[[str, Headers, str | bytes | None, Collection[Headers]], SendSpan]
"""Begins the trace of a record with this topic, these headers, this key, and the headers of the
records that it was made from."""


def client_options(settings: KafkaSettings) -> dict[str, Any]:
    """Return the options of every librdkafka client."""
    return {
        "bootstrap.servers": settings.bootstrap_servers,
        "socket.nagle.disable": True,
        "log.connection.close": False,
        # The default of 10 s would prolong a short outage.
        "reconnect.backoff.max.ms": 1_000,
        # A broker that stands still keeps its connections open: by default its clients would wait
        # 60 s for its answers, long after another one leads its partitions.
        "socket.timeout.ms": 10_000,
        "log_level": 4,
        "logger": log.logger(),
        **{
            name: value.get_secret_value() if isinstance(value, SecretStr) else value
            for name, value in settings.options.items()
        },
    }


def client(kind: Callable[[dict[str, Any]], C], options: dict[str, Any]) -> C:
    """Return a librdkafka client. Raises `SettingsRejected` for options that it refuses."""
    try:
        return kind(options)
    except KafkaException as error:
        reason = error.args[0].str().strip()
        raise SettingsRejected("SEAMLESSFLOW_KAFKA__OPTIONS", reason) from error


SOURCE_HEADER = "source-header-"
"""Prefix of the names that the source record's own headers have on a dead-letter topic."""


def dead_letter_headers(
    topic: str, partition: int | None, offset: int | None, error: str, headers: Headers = ()
) -> list[tuple[str, bytes]]:
    """Return the headers of a record on a dead-letter topic; `headers` are the source's own."""
    return [
        ("error", error.encode()),
        ("source-topic", topic.encode()),
        ("source-partition", str(partition).encode()),
        ("source-offset", str(offset).encode()),
        *((SOURCE_HEADER + name, value) for name, value in headers),
    ]
