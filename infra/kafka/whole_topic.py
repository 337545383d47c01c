"""All records of a topic, from its start to where it ended when the reading began."""

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
    """Yield all records that are there now, each partition in its order.

    Records of transactions only if committed. Raises `KafkaUnavailable` if no record arrives for
    30 s although the end is not reached.
    """
    numbers = range(topic.partitions) if partitions is None else partitions
    places: list[Partition] = [(topic.name, number) for number in numbers]
    reader = Reader(settings, f"reading-{topic.name}")
    try:
        ends = {place: end for place, end in reader.ends(places).items() if end > 0}
        reader.assign(dict.fromkeys(ends, BEGINNING))
        yield from _read_to(ends, reader, settings)
    finally:
        reader.close()


def _read_to(
    ends: dict[Partition, int], reader: Reader, settings: KafkaSettings
) -> Iterator[Received]:
    received_s = time.monotonic()
    while ends:
        for item in reader.poll(_POLL_S):
            received_s = time.monotonic()
            if item.offset < ends.get((item.topic, item.partition), 0):
                yield item
        ends = {place: end for place, end in ends.items() if reader.position(place) < end}
        silent_s = time.monotonic() - received_s
        # The last offsets of a transactional topic are commit markers, which readers never get.
        if silent_s > _TRANSACTIONAL_SILENCE_S and {topic for topic, _ in ends} <= _TRANSACTIONAL:
            return
        if silent_s > _SILENCE_S:
            raise KafkaUnavailable(
                settings.bootstrap_servers, _SILENCE_S, f"no more records of {list(ends)}"
            )


_TRANSACTIONAL = {TRAJECTORIES.name}
