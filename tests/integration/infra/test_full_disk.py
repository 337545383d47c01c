"""A broker whose disk is full ends; with room and a new start nothing is lost, nothing is twice."""

from pathlib import Path

import pytest

from seamlessflow.infra.broker.broker import Broker
from seamlessflow.infra.broker.programs import SHORT_LIVED
from seamlessflow.infra.clock import never
from seamlessflow.infra.kafka.producer import Producer
from seamlessflow.infra.kafka.topics.creation import create_topics
from seamlessflow.infra.kafka.unreadable import Skipped
from seamlessflow.infra.kafka.whole_topic import read_topic
from seamlessflow.schemas.records import WorkerLost
from seamlessflow.schemas.topics import Topic
from tests.builders.disks.file_limit import largest_file
from tests.builders.records import control
from tests.waiting import until

LOST = Topic("lost", 1, 60_000, (WorkerLost,), max_record_bytes=1024 * 1024)
LARGEST_FILE = 12 * 1024 * 1024
"""Above the 10 MiB that Kafka gives an index at once."""
RECORDS = 150
REASON = "x" * 100_000
DEADLINE_S = 120


@pytest.mark.slow
def test_a_broker_without_room_ends_and_all_goes_on_when_there_is_some(tmp_path: Path) -> None:
    with largest_file(LARGEST_FILE):
        broker = Broker(tmp_path, java=SHORT_LIVED)
        broker.start()
    try:
        create_topics(broker.settings, [LOST])
        producer = Producer(broker.settings, "writer")
        for number in range(RECORDS):
            producer.send(LOST.name, control.lost(reason=f"{number} {REASON}"))
        until(lambda: not broker.running, "the end of the broker", DEADLINE_S)
        assert broker.exit_status == 1
        broker.start()
        producer.settle(never)
        read = [item.record for item in read_topic(broker.settings, LOST, Skipped())]
        numbers = [record.reason.split()[0] for record in read if isinstance(record, WorkerLost)]
        assert numbers == [str(number) for number in range(RECORDS)]
        producer.close()
    finally:
        broker.stop()
