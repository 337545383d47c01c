"""The committer on a real broker that stands still for longer than a transaction may take."""

import logging
import os
import queue
import signal
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from seamlessflow.consumers.trajectories.bus.committer import Committer, Job
from seamlessflow.consumers.trajectories.sessions.partition import Emission, PartitionProgress
from seamlessflow.infra.broker.broker import Broker
from seamlessflow.infra.broker.programs import SHORT_LIVED
from seamlessflow.infra.kafka.client import BEGINNING
from seamlessflow.infra.kafka.producer import Producer
from seamlessflow.infra.kafka.reader import Reader
from seamlessflow.infra.kafka.reader_thread import ReaderThread
from seamlessflow.infra.kafka.topics.creation import create_topics
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.schemas.records import EndedSession, Trajectory
from seamlessflow.schemas.topics import ENDED_SESSIONS, REQUESTS, TRAJECTORIES
from tests.builders.own_topics import SMALL, small
from tests.builders.trainer.trajectories import one_turn
from tests.waiting import until

pytestmark = [pytest.mark.kafka, pytest.mark.slow]
GROUP = "managers"
DEADLINE_S = 120.0


@dataclass(frozen=True)
class CommitterSetup:
    """A committer and its broker."""

    kafka: KafkaSettings
    broker: int
    committer: Committer
    reader: ReaderThread


@pytest.fixture
def setup(tmp_path: Path) -> Iterator[CommitterSetup]:
    with Broker(tmp_path, java=SHORT_LIVED) as broker:
        assert broker.pid is not None
        kafka = broker.settings
        create_topics(kafka, small(REQUESTS, TRAJECTORIES, ENDED_SESSIONS))
        assigned = threading.Event()
        reader = Reader(kafka, "requests", group=GROUP)
        reader.subscribe([REQUESTS.name], on_assigned=lambda _: assigned.set())
        failures: queue.SimpleQueue[BaseException] = queue.SimpleQueue()
        thread = ReaderThread("requests", reader, lambda _: None, failures.put).start()
        assert assigned.wait(DEADLINE_S)
        producer = Producer(kafka, "manager")
        committer = Committer(kafka, "0", producer, thread, GROUP)
        yield CommitterSetup(kafka, broker.pid, committer, thread)
        committer.close()
        producer.close()
        thread.close()
        assert failures.empty(), failures.get()


def emission(session_id: str) -> Emission:
    return Emission(
        one_turn(session_id), EndedSession(session_id=session_id, calls=b"", named_calls=b"")
    )


def committed(setup: CommitterSetup, job: Job) -> bool:
    outcomes: queue.SimpleQueue[bool] = queue.SimpleQueue()
    setup.committer.submit(job, outcomes.put)
    return outcomes.get(timeout=DEADLINE_S)


def test_a_transaction_that_met_an_outage_is_committed_once(
    setup: CommitterSetup, caplog: pytest.LogCaptureFixture
) -> None:
    job = Job({3: [emission("s")]}, {3: (7, PartitionProgress(1, 5, 6, 1))}, 0)
    outcomes: queue.SimpleQueue[bool] = queue.SimpleQueue()
    with caplog.at_level(logging.WARNING):
        os.kill(setup.broker, signal.SIGSTOP)
        try:
            setup.committer.submit(job, outcomes.put)
            until(lambda: "waiting for Kafka" in caplog.text, "a try in vain")
        finally:
            os.kill(setup.broker, signal.SIGCONT)
    took = outcomes.get(timeout=DEADLINE_S)
    while not took:
        took = committed(setup, job)
    assert committed(
        setup, Job({3: [emission("last")]}, {3: (8, PartitionProgress(1, 5, 7, 1))}, 0)
    )

    assert sorted(read_to(setup.kafka, "last")) == ["last", "s"]
    assert threads("trajectories-0 deliveries") == 1


def read_to(kafka: KafkaSettings, last: str) -> list[str]:
    """Return the sessions of all committed trajectories up to `last`."""
    reader = Reader(kafka, "trainer")
    reader.assign(
        {(TRAJECTORIES.name, n): BEGINNING for n in range(SMALL[TRAJECTORIES.name].partitions)}
    )
    session_ids: list[str] = []

    def is_read() -> bool:
        records = [item.record for item in reader.poll(0.1)]
        session_ids.extend(
            record.session_id for record in records if isinstance(record, Trajectory)
        )
        return last in session_ids

    until(is_read, f"the trajectory of {last}")
    reader.close()
    return session_ids


def threads(name: str) -> int:
    return sum(thread.name == name for thread in threading.enumerate())
