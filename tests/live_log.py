"""A log that tests wait on while processes write it."""

import time
from collections.abc import Callable
from typing import TypeVar

from seamlessflow.infra.kafka.client import BEGINNING
from seamlessflow.infra.kafka.reader import Reader
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.schemas.records import Record
from seamlessflow.schemas.topics import Topic

R = TypeVar("R", bound=Record)


class LiveLog:
    """All records of some topics, read from their beginning."""

    def __init__(self, kafka: KafkaSettings, *topics: Topic, limit_s: float = 120.0) -> None:
        self.records: list[Record] = []
        self._limit_s = limit_s
        self._reader = Reader(kafka, "test-log")
        self._reader.assign(
            {(topic.name, n): BEGINNING for topic in topics for n in range(topic.partitions)}
        )

    def all(self, kind: type[R]) -> list[R]:
        """Return the records of a kind read so far."""
        return [record for record in self.records if isinstance(record, kind)]

    def wait(
        self, kind: type[R], fits: Callable[[R], bool] = lambda record: True, count: int = 1
    ) -> list[R]:
        """Read until `count` records fit and return them; fail after the limit."""
        deadline = time.monotonic() + self._limit_s
        matches = [record for record in self.all(kind) if fits(record)]
        while len(matches) < count and time.monotonic() < deadline:
            new = [item.record for item in self._reader.poll(0.05)]
            self.records += new
            matches += [record for record in new if isinstance(record, kind) and fits(record)]
        assert len(matches) >= count, f"no {count} {kind.__name__} that fit: {self.all(kind)}"
        return matches

    def close(self) -> None:
        """Close the reader."""
        self._reader.close()
