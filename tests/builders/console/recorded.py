"""The records of the golden log, in the order in which a reader could deliver them."""

import random
from collections.abc import Sequence
from functools import cache

from seamlessflow.infra.kafka.client import Received
from tests.builders.console.memory_log import raw_item
from tests.golden.golden_log import LOGS, read


@cache
def recorded_items() -> Sequence[Received]:
    """Return all records, topic by topic."""
    (path,) = sorted(LOGS.glob("*.jsonl.xz"))[-1:]
    return [
        raw_item(
            record.topic,
            record.partition,
            record.offset,
            record.timestamp_ms,
            record.value,
            record.key,
            record.headers,
        )
        for records in read(path).values()
        for record in records
    ]


def delivered(items: Sequence[Received], rng: random.Random) -> list[Received]:
    """Return the records with their partitions mixed, each partition in its order."""
    left: dict[tuple[str, int], list[Received]] = {}
    for item in items:
        left.setdefault((item.topic, item.partition), []).append(item)
    mixed = []
    while left:
        place = rng.choice(sorted(left))
        count = rng.randrange(1, 40)
        mixed += left[place][:count]
        left[place] = left[place][count:]
        if not left[place]:
            del left[place]
    return mixed
