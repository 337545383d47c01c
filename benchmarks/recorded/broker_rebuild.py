"""Time in which manager processes take over a real broker's log.

The times are read from the log. The managers' claims mark when reading begins. A command for an
unknown session waits in every partition; the manager refuses it as soon as it owns the partition.
Broker and managers share the machine with everything else that runs on it.
"""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from benchmarks.load.children import Children, cpu_s, peak_mb
from seamlessflow.consumers.trajectories.sessions.partition import PartitionProgress
from seamlessflow.infra.broker.broker import Broker
from seamlessflow.infra.broker.programs import SHORT_LIVED
from seamlessflow.infra.clock import now_ms
from seamlessflow.infra.kafka.producer import Producer, TransactionalProducer
from seamlessflow.infra.kafka.reader import Reader
from seamlessflow.infra.kafka.topics.creation import create_topics
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import PolicyWeights, Record
from seamlessflow.schemas.topics import FLEET, REQUESTS, SESSIONS, TOPICS, fleet_key

_GROUP = "trajectory-managers"
_DEADLINE_S = 900
_AGE_MS = 86_400_000
_PARTITIONS = range(SESSIONS.partitions)


def broker_rebuild(
    policy: PolicyWeights, events: Iterable[Record], managers: int
) -> dict[str, float]:
    """Return events a second in wall time over all partitions, the managers' CPU time and memory.

    Raises `TimeoutError` if the managers do not own all partitions in time.
    """
    with Broker(None, java=SHORT_LIVED) as broker:
        create_topics(broker.settings, TOPICS.values())
        ends = _write(broker.settings, policy, events)
        variables = {
            "SEAMLESSFLOW_KAFKA__BOOTSTRAP_SERVERS": broker.settings.bootstrap_servers,
            "SEAMLESSFLOW_MANAGER__GROUP": _GROUP,
        }
        with Children() as children:
            for number in range(managers):
                children.start(
                    f"m{number}", "seamlessflow.consumers.trajectories", environment=variables
                )
            pids = list(children.pids().values())
            takeover = _wait_until_owned(broker.settings, ends, pids)
            peaks = [peak_mb(pid) for pid in pids]
    count, prefix = sum(ends.values()), f"broker_rebuild_by_{managers}"
    return {
        "broker_rebuild_events": count,
        f"{prefix}_events_per_s": round(count / takeover.wall_s),
        f"{prefix}_cpu_us_per_event": round(takeover.cpu_s / count * 1e6, 1),
        f"{prefix}_peak_mb": max(peaks),
    }


@dataclass(frozen=True, slots=True)
class Takeover:
    """A takeover's duration, from the first claim until the last partition is owned."""

    wall_s: float
    cpu_s: float


def _write(
    settings: KafkaSettings, policy: PolicyWeights, events: Iterable[Record]
) -> dict[int, int]:
    """Write the log, progress that covers it, and a command to each partition; return its ends."""
    producer = Producer(settings, "benchmark", linger_ms=5)
    producer.send(FLEET.name, policy, key=fleet_key(policy))
    for event in events:
        session_id: str = event.session_id  # type: ignore[attr-defined]
        producer.send(SESSIONS.name, event, key=session_id)
    for number in _PARTITIONS:
        producer.send(REQUESTS.name, for_unknown_session(f"command-{number}"), partition=number)
    producer.flush(_DEADLINE_S)
    reader = Reader(settings, "benchmark-group", group=_GROUP)
    places = {number: (SESSIONS.name, number) for number in _PARTITIONS}
    offsets = reader.ends(places.values())
    ends = {number: offsets[place] for number, place in places.items()}
    covered = {
        (REQUESTS.name, number): (0, PartitionProgress(1, 0, end).encode())
        for number, end in ends.items()
    }
    committer = TransactionalProducer(settings, "benchmark-progress")
    committer.commit(lambda: None, covered, reader.group_metadata())
    for client in (committer, reader, producer):
        client.close()
    return ends


def _wait_until_owned(
    settings: KafkaSettings, ends: dict[int, int], pids: Sequence[int]
) -> Takeover:
    reader = Reader(settings, "benchmark-owned")
    reader.assign({(SESSIONS.name, number): end for number, end in ends.items()})
    began: list[int] = []
    owned: dict[int, int] = {}
    used_s = 0.0
    deadline = time.monotonic() + _DEADLINE_S
    try:
        while len(owned) < len(ends):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{len(owned)} partitions owned after {_DEADLINE_S} s")
            for received in reader.poll(0.1):
                if isinstance(received.record, r.PartitionClaimed):
                    used_s = used_s or sum(map(cpu_s, pids))
                    began.append(received.record.at_ms)
                elif isinstance(received.record, r.CommandRefused):
                    owned[received.partition] = received.record.at_ms
    finally:
        reader.close()
    return Takeover((max(owned.values()) - min(began)) / 1000, sum(map(cpu_s, pids)) - used_s)


def for_unknown_session(name: str) -> r.CloseSession:
    """Return a command with this name, which its partition's owner refuses."""
    return r.CloseSession(
        command_id=name,
        session_id=f"unknown-{name}",
        issued_at_ms=now_ms(),
        expires_at_ms=now_ms() + _AGE_MS,
    )
