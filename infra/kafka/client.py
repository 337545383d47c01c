"""Options and types that all Kafka clients of this project share.

Only modules of this package import `confluent_kafka`. Callers give topic names without the
configured prefix.
"""

import json
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple, Protocol, TypeVar

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, KafkaException

from seamlessflow.infra.errors import SettingsRejected
from seamlessflow.infra.kafka import log
from seamlessflow.infra.settings import KafkaSettings, SecretStr
from seamlessflow.schemas.records import Record
from seamlessflow.schemas.topics import Headers

C = TypeVar("C")
LogPartition = tuple[str, int]
BEGINNING: int = OFFSET_BEGINNING
END: int = OFFSET_END
_IN_FLIGHT = 2
_STATISTICS_MS = 5_000
_REAL = ("configured", "learned")
"""Sources of brokers with an address; librdkafka also lists some of its own."""
STRANDED = "the client has lost all brokers and looks for none"
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
    size: int = 0
    """Its value's bytes on the log."""


class SendSpan(Protocol):
    """The trace of one record, until it is on the log."""

    @property
    def headers(self) -> Headers:
        """Headers that replace the record's own; empty if it is not traced."""
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
"""Function that begins a record's trace. It gets topic, headers, key, and the headers of the
records that it was made from."""


def client_options(settings: KafkaSettings) -> dict[str, Any]:
    """Return the options for every librdkafka client."""
    return {
        "bootstrap.servers": settings.bootstrap_servers,
        "socket.nagle.disable": True,
        "log.connection.close": False,
        # The default of 10 s would prolong a short outage.
        "reconnect.backoff.max.ms": 1_000,
        # A broker that stands still keeps its connections open. By default its clients would wait
        # 60 s for answers, long after another broker leads its partitions.
        "socket.timeout.ms": 10_000,
        # A partition may lose its leader and get it back within milliseconds. A client may then
        # have no broker for it until it asks next, by default 300 s later (librdkafka pull request
        # 5593).
        "topic.metadata.refresh.interval.ms": 5_000,
        "log_level": 4,
        "logger": log.logger(),
        **{
            name: value.get_secret_value() if isinstance(value, SecretStr) else value
            for name, value in settings.options.items()
        },
    }


def consumer_options(settings: KafkaSettings, client_id: str, group: str) -> dict[str, Any]:
    """Return the options for a consumer that commits nothing by itself."""
    return {
        "client.id": client_id,
        "group.id": group,
        "enable.auto.commit": False,
        "enable.partition.eof": False,
        "auto.offset.reset": "earliest",
        "fetch.message.max.bytes": LARGEST_RECORD_BYTES,
        "fetch.max.bytes": 2 * LARGEST_RECORD_BYTES,
        "receive.message.max.bytes": 4 * LARGEST_RECORD_BYTES,
        "fetch.wait.max.ms": 500,
        **client_options(settings),
    }


def producer_options(settings: KafkaSettings, client_id: str) -> dict[str, Any]:
    """Return the options for an idempotent producer with `acks=all`."""
    return {
        "client.id": client_id,
        "enable.idempotence": True,
        "acks": "all",
        "partitioner": "murmur2_random",
        # Records sent meanwhile share the next request, so batches grow with the load.
        "max.in.flight.requests.per.connection": _IN_FLIGHT,
        "compression.type": "none",
        "message.max.bytes": LARGEST_RECORD_BYTES,
        "queue.buffering.max.kbytes": 1_048_576,
        "queue.buffering.max.messages": 0,
        **client_options(settings),
        # Records wait for the end of an outage, however long it is.
        "message.timeout.ms": 0,
    }


def client(kind: Callable[[dict[str, Any]], C], options: dict[str, Any]) -> C:
    """Return a librdkafka client. Raises `SettingsRejected` for options that it refuses."""
    try:
        return kind(options)
    except KafkaException as error:
        reason = error.args[0].str().strip()
        raise SettingsRejected("SEAMLESSFLOW_KAFKA__OPTIONS", reason) from error


class BrokerWatch:
    """Watch that notices when librdkafka has left a client without any broker, for ever.

    A fenced broker may answer that there are no brokers. The client then drops this broker, and
    may cancel its return to the bootstrap servers (librdkafka issue 5301). Or it learns of the
    broker again and never connects to it. Another client must replace it. In an outage, however, a
    client keeps the brokers that it knows, and tries to connect every second.
    """

    def __init__(self) -> None:
        self._without = 0

    @property
    def options(self) -> dict[str, Any]:
        """Options for the client, whose poll then calls `note`."""
        return {"statistics.interval.ms": _STATISTICS_MS, "stats_cb": self.note}

    @property
    def stranded(self) -> bool:
        """True once two statistics in a row show no broker: one may show a change under way."""
        return self._without > 1

    def note(self, statistics: str) -> None:
        """Note the client's statistics, a JSON object."""
        brokers = json.loads(statistics)["brokers"].values()
        used = any(broker["source"] in _REAL and not _left_alone(broker) for broker in brokers)
        self._without = 0 if used else self._without + 1


def _left_alone(broker: Mapping[str, Any]) -> bool:
    """Return whether the client has not tried to connect since the previous statistics."""
    return broker["state"] == "INIT" and int(broker["stateage"]) >= 1000 * _STATISTICS_MS


def watched(kind: Callable[[dict[str, Any]], C], options: dict[str, Any]) -> tuple[BrokerWatch, C]:
    """Return a client, which must be polled, and the watch over its brokers."""
    watch = BrokerWatch()
    return watch, client(kind, {**options, **watch.options})


SOURCE_HEADER = "source-header-"
"""Prefix for the names of the source record's own headers on a dead-letter topic."""


def dead_letter_headers(
    topic: str, partition: int | None, offset: int | None, error: str, headers: Headers = ()
) -> list[tuple[str, bytes]]:
    """Return the headers for a record on a dead-letter topic; `headers` are the source's own."""
    return [
        ("error", error.encode()),
        ("source-topic", topic.encode()),
        ("source-partition", str(partition).encode()),
        ("source-offset", str(offset).encode()),
        *((SOURCE_HEADER + name, value) for name, value in headers),
    ]
