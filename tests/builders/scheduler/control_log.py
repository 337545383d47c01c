"""A log of the scheduler's topics that tests of the scheduler wait on."""

from seamlessflow.infra.kafka.producer import Producer
from seamlessflow.infra.kafka.topics.creation import create_topics
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.schemas.records import Record
from seamlessflow.schemas.topics import ARMS, CONTROL, FLEET, PROMPTS, TASKS, fleet_key
from tests.builders.own_topics import small
from tests.live_log import LiveLog

LIMIT_S = 120.0


class ControlLog(LiveLog):
    """All of `control`, `fleet`, `arms` and `tasks`, and a way to write."""

    def __init__(self, kafka: KafkaSettings) -> None:
        create_topics(kafka, small(ARMS, CONTROL, FLEET, PROMPTS, TASKS))
        self._producer = Producer(kafka, "test")
        super().__init__(kafka, *small(ARMS, CONTROL, FLEET, TASKS), limit_s=LIMIT_S)

    def write(self, *records: Record) -> None:
        """Append to `control`."""
        for record in records:
            self._producer.send(CONTROL.name, record)
        self._producer.flush(LIMIT_S)

    def keep(self, record: Record) -> None:
        """Write to `fleet`."""
        self._producer.send(FLEET.name, record, key=fleet_key(record))
        self._producer.flush(LIMIT_S)

    def control(self, count: int) -> list[Record]:
        """Return the first records of `control`, and wait until there are so many."""
        return self.wait(Record, lambda record: isinstance(record, CONTROL.records), count)[:count]

    def close(self) -> None:
        """Close the clients."""
        self._producer.close()
        super().close()
