"""Settings of the embedded broker: one node, broker and controller, on loopback only. Pure.

Called by `seamlessflow.infra.broker.storage`. Settings whose default is good are not listed.
"""

import os

from seamlessflow.infra.network.addresses import HOST

LOG_DIR = "log"
"""Directory of the records, below that in which the broker runs: Kafka would take a comma in a path
for the border between two, and a backslash for an escape."""
MIB = 1024 * 1024
_MOST_IO_THREADS = 8
"""Kafka's default."""


def properties(port: int, controller_port: int) -> dict[str, str | int]:
    """Return the values of `server.properties` by name."""
    return {
        **_network(port, controller_port),
        "log.dirs": LOG_DIR,
        **_ONE_NODE,
        "num.io.threads": io_threads(os.cpu_count() or _MOST_IO_THREADS),
        **_DEADLINES,
        **_SIZES,
        **_KEEPING,
    }


def io_threads(cores: int) -> int:
    """Return the number of threads: more of them than cores cost a fifth more CPU."""
    return max(2, min(cores, _MOST_IO_THREADS))


def as_text(values: dict[str, str | int]) -> str:
    """Return the lines of a Java properties file."""
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
    # Kafka's default. Sooner, a broker that starts again would end transactions that timed out
    # before its partitions have leaders, and leave out their markers (KAFKA-20734): the offsets in
    # them could never be read again.
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 10_000,
    "transaction.max.timeout.ms": 60_000,
    # A killed broker can be started again after this time (9 s by default).
    "broker.session.timeout.ms": 3_000,
    "broker.heartbeat.interval.ms": 500,
}

_SIZES: dict[str, str | int] = {
    # Topics set their own lower limits.
    "message.max.bytes": 33 * MIB,
    "replica.fetch.max.bytes": 33 * MIB,
    # Requests that wait for a thread take memory of the heap.
    "queued.max.request.bytes": 128 * MIB,
    # A third of the heap by default, all of it allocated at the start.
    "log.cleaner.dedupe.buffer.size": 16 * MIB,
    # Index files are created at full size, 10 MiB each by default, for several hundred partitions.
    "log.segment.bytes": 256 * MIB,
    "log.index.size.max.bytes": 1 * MIB,
}

_KEEPING: dict[str, str | int] = {
    # Topics set their own retention; nothing else expires, as a machine may be off for weeks.
    "log.retention.ms": -1,
    "offsets.retention.minutes": 365 * 24 * 60,
}
