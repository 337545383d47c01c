"""A log of `control`, `fleet` and `tasks` that tests of the scheduler wait on."""

import time
from collections.abc import Callable
from typing import TypeVar

from infra.kafka.client import BEGINNING
from infra.kafka.producer import Producer
from infra.kafka.reader import Reader
from infra.kafka.topics.creation import create_topics
from infra.settings import KafkaSettings
from schemas.records import Record
from schemas.topics import CONTROL, FLEET, PROMPTS, TASKS, fleet_key
from tests.builders.own_topics import SMALL, small

LIMIT_S = 30.0
R = TypeVar("R", bound=Record)


class ControlLog:
    """All of `control`, `fleet` and `tasks`, read from their beginning, and a way to write."""

    def __init__(self, kafka: KafkaSettings) -> None:
        create_topics(kafka, small(CONTROL, FLEET, PROMPTS, TASKS))
        self.records: list[Record] = []
        self._producer = Producer(kafka, "test")
        self._reader = Reader(kafka, "test-log")
        tasks = {(TASKS.name, number): BEGINNING for number in range(SMALL[TASKS.name].partitions)}
        self._reader.assign({(CONTROL.name, 0): BEGINNING, (FLEET.name, 0): BEGINNING, **tasks})

    def write(self, *records: Record) -> None:
        """Append to `control`."""
        for record in records:
            self._producer.send(CONTROL.name, record)
        self._producer.flush(LIMIT_S)

    def keep(self, record: Record) -> None:
        """Write to `fleet`."""
        self._producer.send(FLEET.name, record, key=fleet_key(record))
        self._producer.flush(LIMIT_S)

    def all(self, kind: type[R]) -> list[R]:
        """Return the records of a kind read so far."""
        return [record for record in self.records if isinstance(record, kind)]

    def wait(
        self, kind: type[R], fits: Callable[[R], bool] = lambda record: True, count: int = 1
    ) -> list[R]:
        """Read until `count` records fit and return them; fail after `LIMIT_S`."""
        deadline = time.monotonic() + LIMIT_S
        while time.monotonic() < deadline:
            found = [record for record in self.all(kind) if fits(record)]
            if len(found) >= count:
                return found
            self.records += [item.record for item in self._reader.poll(0.05)]
        raise AssertionError(f"no {count} {kind.__name__} that fit: {self.all(kind)}")

    def close(self) -> None:
        """Close the clients."""
        self._producer.close()
        self._reader.close()
