"""Reading what a topic holds, from its start to where it ended when the reading began."""

import time
from collections.abc import Iterator, Sequence

from infra.errors import KafkaUnavailable
from infra.kafka.client import BEGINNING, Partition, Received
from infra.kafka.reader import Reader
from infra.settings import KafkaSettings
from schemas.topics import TRAJECTORIES, Topic

_POLL_S = 0.2
_SILENCE_S = 30.0
_TRANSACTIONAL_SILENCE_S = 3.0


def read_topic(
    settings: KafkaSettings, topic: Topic, partitions: Sequence[int] | None = None
) -> Iterator[Received]:
    """All records there are now, each partition in its order; of transactions committed ones only.

    Raises `KafkaUnavailable` when nothing more comes although the end is not reached.
    """
    numbers = range(topic.partitions) if partitions is None else partitions
    places: list[Partition] = [(topic.name, number) for number in numbers]
    reader = Reader(settings, f"reading-{topic.name}")
    try:
        ends = {place: end for place, end in reader.ends(places).items() if end > 0}
        reader.assign(dict.fromkeys(ends, BEGINNING))
        yield from _to(ends, reader, settings)
    finally:
        reader.close()


def _to(ends: dict[Partition, int], reader: Reader, settings: KafkaSettings) -> Iterator[Received]:
    heard = time.monotonic()
    while ends:
        for item in reader.poll(_POLL_S):
            heard = time.monotonic()
            if item.offset < ends.get((item.topic, item.partition), 0):
                yield item
        ends = {place: end for place, end in ends.items() if reader.position(place) < end}
        silent_s = time.monotonic() - heard
        # The last offsets of a transactional topic are markers, which no reader ever gets.
        if silent_s > _TRANSACTIONAL_SILENCE_S and {topic for topic, _ in ends} <= _TRANSACTIONAL:
            return
        if silent_s > _SILENCE_S:
            raise KafkaUnavailable(settings.bootstrap_servers, _SILENCE_S, f"silent: {list(ends)}")


_TRANSACTIONAL = {TRAJECTORIES.name}
