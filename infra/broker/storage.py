"""An embedded broker's directory: its files, and whether a broker uses it.

    server.properties   written anew at each start: one node, broker and controller, on loopback
                        only; settings whose default is good are not listed
    broker.log          the Java process's output, appended to at each start; its middle is cut
                        out when it grows beyond 8 MiB (`watches.py`)
    log/                records and metadata, written by Kafka

Called by `seamlessflow.infra.broker.broker`.
"""

import base64
import fcntl
import os
import shutil
import uuid
from collections.abc import Mapping
from errno import EILSEQ
from pathlib import Path

from seamlessflow.infra.network.addresses import HOST

_LOG_DIR = "log"
"""Directory with the records, relative to the broker's own. In a longer path, Kafka would take a
comma for a separator and a backslash for an escape."""
_MIB = 1024 * 1024
_MOST_IO_THREADS = 8
"""Kafka's default."""


class BrokerStorage:
    """One broker's directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory.absolute()
        self.log_file = self.directory / "broker.log"
        self.properties_file = self.directory / "server.properties"
        self._kafka = self.directory / _LOG_DIR

    @property
    def formatted(self) -> bool:
        """True once Kafka has formatted the directory."""
        return (self._kafka / "meta.properties").exists()

    @property
    def in_use(self) -> bool:
        """True while a broker uses the directory. The lock is Kafka's and ends with its process."""
        try:
            with (self._kafka / ".lock").open("r+b") as stream:
                fcntl.lockf(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except FileNotFoundError:
            return False
        except OSError:
            return True
        return False

    def write_properties(
        self, port: int, controller_port: int, others: Mapping[str, str | int]
    ) -> None:
        """Write the next start's settings; `others` are added or replace them."""
        values = {**properties(port, controller_port), **others}
        self.properties_file.write_text(_as_text(values), encoding="utf-8")

    def make(self) -> None:
        """Make the directory, for this user only, if it is missing. Raises `OSError`."""
        if not _is_text(self.directory):
            raise OSError(EILSEQ, "a byte of its name is no UTF-8, which Java needs")
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)

    def remove(self) -> None:
        """Delete it with all records."""
        shutil.rmtree(self.directory, ignore_errors=True)


def new_cluster_id() -> str:
    """Return a random UUID in Kafka's form."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")


def properties(port: int, controller_port: int) -> dict[str, str | int]:
    """Return the values of `server.properties` by name."""
    return {
        **_network(port, controller_port),
        "log.dirs": _LOG_DIR,
        **_ONE_NODE,
        "num.io.threads": _io_threads(os.cpu_count() or _MOST_IO_THREADS),
        **_DEADLINES,
        **_SIZES,
        **_KEEPING,
    }


def _io_threads(cores: int) -> int:
    """Return how many threads to use: more than there are cores cost a fifth more CPU."""
    return max(2, min(cores, _MOST_IO_THREADS))


def _as_text(values: dict[str, str | int]) -> str:
    """Return the values as a Java properties file's text."""
    return "".join(f"{name}={value}\n" for name, value in values.items())


def _network(port: int, controller_port: int) -> dict[str, str | int]:
    return {
        "process.roles": "broker,controller",
        "node.id": 1,
        # Static voters: read from this file at each start, so ports may change between starts.
        "controller.quorum.voters": f"1@{HOST}:{controller_port}",
        "listeners": f"PLAINTEXT://{HOST}:{port},CONTROLLER://{HOST}:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://{HOST}:{port}",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    }


_ONE_NODE: dict[str, str | int] = {
    "offsets.topic.replication.factor": 1,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "share.coordinator.state.topic.replication.factor": 1,
    "share.coordinator.state.topic.min.isr": 1,
    "offsets.topic.num.partitions": 4,
    "transaction.state.log.num.partitions": 4,
    "share.coordinator.state.topic.num.partitions": 1,
    "auto.create.topics.enable": "false",
}

_DEADLINES: dict[str, str | int] = {
    "group.initial.rebalance.delay.ms": 0,
    # How long a killed member keeps its partitions, and how soon the others learn of it.
    "group.consumer.min.session.timeout.ms": 6_000,
    "group.consumer.session.timeout.ms": 6_000,
    "group.consumer.min.heartbeat.interval.ms": 500,
    "group.consumer.heartbeat.interval.ms": 1_000,
    # Kafka's default. With less, a broker that starts again would end timed-out transactions before
    # its partitions have leaders. It would leave out their markers (KAFKA-20734), and the offsets
    # in them could never be read again.
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 10_000,
    "transaction.max.timeout.ms": 60_000,
    # A killed broker can be started again after this time (9 s by default). One that gets no CPU
    # for so long is fenced, and its clients lose it for half a minute.
    "broker.session.timeout.ms": 6_000,
    "broker.heartbeat.interval.ms": 500,
}

_SIZES: dict[str, str | int] = {
    # Topics set their own lower limits.
    "message.max.bytes": 33 * _MIB,
    "replica.fetch.max.bytes": 33 * _MIB,
    # Requests that wait for a thread take memory of the heap.
    "queued.max.request.bytes": 128 * _MIB,
    # A third of the heap by default, all of it allocated at the start.
    "log.cleaner.dedupe.buffer.size": 16 * _MIB,
    # Index files are created at full size, 10 MiB each by default, for several hundred partitions.
    "log.segment.bytes": 256 * _MIB,
    "log.index.size.max.bytes": 1 * _MIB,
}

_KEEPING: dict[str, str | int] = {
    # Topics set their own retention; nothing else expires, as a machine may be off for weeks.
    "log.retention.ms": -1,
    "offsets.retention.minutes": 365 * 24 * 60,
}


def _is_text(path: Path) -> bool:
    try:
        str(path).encode()
    except UnicodeEncodeError:
        return False
    return True
