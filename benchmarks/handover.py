"""Time in which another manager goes on with a partition whose manager leaves or is killed.

    python -m benchmarks handover [--events 100000] [--repeats 3]

One partition of `sessions` holds that many events from open sessions, and the next manager folds
all of them again. Two managers run, one of them without a partition. The owner gets SIGTERM, or is
killed; the time runs from then until its successor answers a command. A killed member is replaced
after the session time-out, which on the embedded broker is 6 s. `_folded_s` is the part from the
successor's claim to its answer, `_cpu_s` the CPU time that it took. `load` is the machine's load
average over a minute.
"""

import argparse
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Self

from benchmarks.load.children import Children, cpu_s
from benchmarks.manager import recorded
from benchmarks.recorded.broker_rebuild import for_unknown_session
from benchmarks.recorded.sessions import Shape, interleaved, renderer
from seamlessflow.infra.broker.broker import Broker
from seamlessflow.infra.broker.programs import SHORT_LIVED
from seamlessflow.infra.clock import now_ms
from seamlessflow.infra.kafka.producer import Producer
from seamlessflow.infra.kafka.reader import Reader
from seamlessflow.infra.kafka.topics.creation import create_topics
from seamlessflow.infra.kafka.topics.groups import GroupLookup
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import PolicyWeights, Record
from seamlessflow.schemas.topics import ENDED_SESSIONS, FLEET, REQUESTS, SESSIONS, TOPICS, fleet_key

_GROUP = "trajectory-managers"
_SHARED = (REQUESTS, SESSIONS, ENDED_SESSIONS)
_DEADLINE_S = 180
_LOOK_S = 0.5
_COMMITS_S = 1.0
"""Time after the last answer in which the owner commits its progress."""
_WAYS: Mapping[str, signal.Signals] = {"sigterm": signal.SIGTERM, "kill": signal.SIGKILL}


def main(argv: Sequence[str]) -> None:
    """Print one line of JSON."""
    parser = argparse.ArgumentParser(prog="benchmarks handover", description=__doc__)
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--repeats", type=int, default=3)
    asked = parser.parse_args(argv)
    with renderer() as (made, policy), Broker(None, java=SHORT_LIVED) as broker:
        sessions = recorded(made, policy, Shape(20, 340, 300), finalized=False)
        copies = max(1, asked.events // sum(map(len, sessions)))
        events = interleaved(sessions, copies)
        written = _write(broker.settings, policy, events)
        with Children() as children, Managers(broker.settings, children, written) as managers:
            managers.start()
            managers.await_owner()
            managers.start()
            times = {way: [managers.hand_over(way) for _ in range(asked.repeats)] for way in _WAYS}
    figures: dict[str, object] = {"benchmark": "handover", "events": written}
    for way, all_of in times.items():
        figures[f"{way}_s"] = round(median(handover.total_s for handover in all_of), 2)
        figures[f"{way}_longest_s"] = round(max(handover.total_s for handover in all_of), 2)
        figures[f"{way}_folded_s"] = round(median(handover.folded_s for handover in all_of), 2)
        figures[f"{way}_cpu_s"] = round(median(handover.cpu_s for handover in all_of), 2)
    print(json.dumps({**figures, "load": round(os.getloadavg()[0], 1)}))


def _write(settings: KafkaSettings, policy: PolicyWeights, events: Sequence[Record]) -> int:
    """Write the one partition's log; return its event count."""
    shared = [replace(topic, partitions=1) for topic in _SHARED]
    others = [topic for topic in TOPICS.values() if topic not in _SHARED]
    create_topics(settings, [*shared, *others])
    producer = Producer(settings, "benchmark", linger_ms=5)
    producer.send(FLEET.name, policy, key=fleet_key(policy))
    for event in events:
        producer.send(SESSIONS.name, event, partition=0)
    producer.flush(_DEADLINE_S)
    producer.close()
    return len(events)


@dataclass(frozen=True, slots=True)
class HandOver:
    """Seconds until the successor's answer: since the owner's end, since the claim, CPU."""

    total_s: float
    folded_s: float
    cpu_s: float


class Managers:
    """An owner of the partition, and a manager that is the next."""

    def __init__(self, kafka: KafkaSettings, children: Children, written: int) -> None:
        self._kafka = kafka
        self._children = children
        self._running: list[subprocess.Popen[str]] = []
        self._started = 0
        self._lookup = GroupLookup(kafka)
        self._producer = Producer(kafka, "benchmark-commands")
        self._reader = Reader(kafka, "benchmark-answers")
        self._reader.assign({(SESSIONS.name, 0): written})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._reader.close()
        self._producer.close()

    def start(self) -> None:
        """Start one more manager, and wait until it is in the group."""
        variables = {
            "SEAMLESSFLOW_KAFKA__BOOTSTRAP_SERVERS": self._kafka.bootstrap_servers,
            "SEAMLESSFLOW_MANAGER__GROUP": _GROUP,
        }
        self._started += 1
        name = f"manager-{self._started}"
        started = self._children.start(
            name, "seamlessflow.consumers.trajectories", environment=variables
        )
        self._running.append(started)
        deadline = time.monotonic() + _DEADLINE_S
        while len(self._lookup.find(_GROUP, _DEADLINE_S).members) != len(self._running):
            _refuse_late(deadline, f"{len(self._running)} members of the group")
            time.sleep(_LOOK_S)

    def hand_over(self, way: str) -> "HandOver":
        """End the owner and wait for its successor; start one more manager."""
        self.await_owner()
        time.sleep(_COMMITS_S)
        owner, successor = self._running.pop(0), self._running[0]
        used_s, ended_ms = cpu_s(successor.pid), now_ms()
        owner.send_signal(_WAYS[way])
        claimed_ms = self._claimed_ms()
        answered_ms = self._answered_ms()
        took_s = (answered_ms - ended_ms) / 1000, (answered_ms - claimed_ms) / 1000
        made = HandOver(*took_s, cpu_s(successor.pid) - used_s)
        owner.wait(_DEADLINE_S)
        self.start()
        return made

    def await_owner(self) -> None:
        """Wait until the partition is served."""
        self._answered_ms()

    def _claimed_ms(self) -> int:
        """Return the next claim's time: its manager now begins to fold the log."""
        return self._next(lambda record: isinstance(record, r.PartitionClaimed))

    def _answered_ms(self) -> int:
        """Send a command for an unknown session; return the time at which it is refused."""
        name = f"command-{now_ms()}"
        self._producer.send(REQUESTS.name, for_unknown_session(name), partition=0)
        return self._next(
            lambda record: isinstance(record, r.CommandRefused) and record.command_id == name
        )

    def _next(self, wanted: Callable[[Record], bool]) -> int:
        """Return the time of the partition's next such event."""
        deadline = time.monotonic() + _DEADLINE_S
        while True:
            _refuse_late(deadline, "event of a manager")
            for received in self._reader.poll(0.1):
                if wanted(received.record):
                    at_ms: int = received.record.at_ms  # type: ignore[attr-defined]
                    return at_ms


def _refuse_late(deadline: float, wanted: str) -> None:
    if time.monotonic() > deadline:
        raise TimeoutError(f"no {wanted} within {_DEADLINE_S} s")
