"""A manager process takes over a log on a real broker: how long until it owns it.

All is read off the log: the claims tell when reading began; a command for a session that nobody
knows waits in every partition, and its refusal tells when the manager owned the partition. The
wall time is that of a broker and a manager that share the machine with whatever else runs on it.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from consumers.trajectories.sessions.partition import PartitionProgress
from infra.broker.broker import Broker
from infra.kafka.producer import Producer, TransactionalProducer
from infra.kafka.reader import Reader
from infra.kafka.topics import create_topics
from infra.settings import KafkaSettings
from schemas import records as r
from schemas.records import PolicyWeights, Record
from schemas.topics import FLEET, REQUESTS, SESSIONS, TOPICS, fleet_key

_GROUP = "trajectory-managers"
_DEADLINE_S = 120
_AGE_MS = 86_400_000
_PARTITIONS = range(SESSIONS.partitions)


def broker_rebuild(policy: PolicyWeights, events: Sequence[Record]) -> dict[str, float]:
    """Events a second of wall time, of all partitions together, and CPU time of the manager.

    Raises `TimeoutError` where the manager does not own them in time.
    """
    with Broker(None, short_lived=True) as broker:
        create_topics(broker.settings, TOPICS.values())
        ends = _write(broker.settings, policy, events)
        with _manager(broker.settings) as process:
            taken = _wait_until_owned(broker.settings, ends, process.pid)
    count = sum(ends.values())
    return {
        "broker_rebuild_events": count,
        "broker_rebuild_events_per_s": round(count / taken.wall_s),
        "broker_rebuild_cpu_us_per_event": round(taken.cpu_s / count * 1e6, 1),
    }


@dataclass(frozen=True, slots=True)
class Taken:
    """How long a takeover lasted, from the first claim to the ownership of the last partition."""

    wall_s: float
    cpu_s: float


def _write(
    settings: KafkaSettings, policy: PolicyWeights, events: Sequence[Record]
) -> dict[int, int]:
    """The log with progress that covers it, and a command a partition; the logs' ends."""
    producer = Producer(settings, "benchmark", linger_ms=5)
    producer.send(FLEET.name, policy, key=fleet_key(policy))
    for event in events:
        session_id: str = event.session_id  # type: ignore[attr-defined]
        producer.send(SESSIONS.name, event, key=session_id)
    for number in _PARTITIONS:
        producer.send(REQUESTS.name, _unheard(number), partition=number)
    producer.flush(_DEADLINE_S)
    reader = Reader(settings, "benchmark-group", group=_GROUP)
    places = {number: (SESSIONS.name, number) for number in _PARTITIONS}
    found = reader.ends(places.values())
    ends = {number: found[place] for number, place in places.items()}
    covered = {
        (REQUESTS.name, number): (0, PartitionProgress(1, 0, end).encode())
        for number, end in ends.items()
    }
    committer = TransactionalProducer(settings, "benchmark-progress")
    committer.commit(lambda: None, covered, reader.group_metadata())
    for client in (committer, reader, producer):
        client.close()
    return ends


@contextmanager
def _manager(settings: KafkaSettings) -> Iterator[subprocess.Popen[bytes]]:
    environment = {
        **os.environ,
        "SEAMLESSFLOW_KAFKA__BOOTSTRAP_SERVERS": settings.bootstrap_servers,
        "SEAMLESSFLOW_MANAGER__GROUP": _GROUP,
    }
    process = subprocess.Popen([sys.executable, "-m", "consumers.trajectories"], env=environment)
    try:
        yield process
    finally:
        process.kill()
        process.wait(_DEADLINE_S)


def _wait_until_owned(settings: KafkaSettings, ends: dict[int, int], pid: int) -> Taken:
    reader = Reader(settings, "benchmark-owned")
    reader.assign({(SESSIONS.name, number): end for number, end in ends.items()})
    began: list[int] = []
    owned: dict[int, int] = {}
    cpu_s = 0.0
    deadline = time.monotonic() + _DEADLINE_S
    try:
        while len(owned) < len(ends):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{len(owned)} partitions owned after {_DEADLINE_S} s")
            for received in reader.poll(0.1):
                if isinstance(received.record, r.PartitionClaimed):
                    cpu_s = cpu_s or _cpu_s(pid)
                    began.append(received.record.at_ms)
                elif isinstance(received.record, r.CommandRefused):
                    owned[received.partition] = received.record.at_ms
    finally:
        reader.close()
    return Taken((max(owned.values()) - min(began)) / 1000, _cpu_s(pid) - cpu_s)


def _cpu_s(pid: int) -> float:
    """CPU time of a process so far, as Linux tells it."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _unheard(partition: int) -> r.CloseSession:
    now_ms = time.time_ns() // 1_000_000
    return r.CloseSession(
        command_id=f"command-{partition}",
        session_id=f"unheard-{partition}",
        issued_at_ms=now_ms,
        expires_at_ms=now_ms + _AGE_MS,
    )
