"""All records in a topic, from its start to where it ended when the reading began."""

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from seamlessflow.infra.clock import Stopping, never
from seamlessflow.infra.errors import KafkaUnavailable
from seamlessflow.infra.kafka.client import BEGINNING, LogPartition, Received
from seamlessflow.infra.kafka.reader import Reader
from seamlessflow.infra.kafka.start.cluster import find_cluster
from seamlessflow.infra.kafka.topics.partitions import partition_of
from seamlessflow.infra.kafka.unreadable import Skipped, Unreadable
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.schemas.topics import Topic

_POLL_S = 0.2
_SILENCE_S = 30.0


def read_topic(
    settings: KafkaSettings,
    topic: Topic,
    skipped: Skipped,
    key: str | None = None,
    stopping: Stopping = never,
) -> Iterator[Received]:
    """Yield all records that the topic has now, each partition in offset order, for an observer.

    With a `key` only its partition is read. Unreadable records are counted in `skipped`.
    Raises what `find_cluster` and `read_partitions` raise.
    """
    numbers = find_cluster(settings, [topic], stopping).numbers(topic)
    if key is not None:
        numbers = numbers[partition_of(key, len(numbers)) :][:1]
    places = [(topic.name, number) for number in numbers]
    for item in read_partitions(settings, places, stopping=stopping):
        if isinstance(item.record, Unreadable):
            skipped.apply(item.topic, item.record)
        else:
            yield item


def read_partitions(
    settings: KafkaSettings,
    places: Sequence[LogPartition],
    *,
    starts: Mapping[LogPartition, int] | None = None,
    ends: Mapping[LogPartition, int] | None = None,
    limit_s: float | None = None,
    stopping: Stopping = never,
    **options: Any,
) -> Iterator[Received]:
    """Yield all records that the partitions have now, also unreadable ones.

    It reads from `starts`, by default the beginning, up to `ends`, by default the present ends.
    Records in transactions come only if committed, and up to the first open transaction. `options`
    are the reader's. Raises what `Reader.ends` and `Reader.poll` raise. Raises `KafkaUnavailable`
    once `stopping`, or if no record arrives for `limit_s` (None: 30 s) before the end is reached.
    """
    # Report partition ends: behind the last record there may be the ends of transactions.
    options["enable.partition.eof"] = True
    reader = Reader(settings, "reading", stopping=stopping, **options)
    silence_s = _SILENCE_S if limit_s is None else limit_s
    try:
        begins = dict.fromkeys(places, BEGINNING) | dict(starts or {})
        stops = reader.ends(places, limit_s) if ends is None else ends
        ends = {place: stops[place] for place in places if stops[place] > max(begins[place], 0)}
        reader.assign({place: begins[place] for place in ends})
        received_s = time.monotonic()
        while ends:
            received = reader.poll(_POLL_S)
            for item in received:
                if item.offset < ends.get((item.topic, item.partition), 0):
                    yield item
            if received:  # after the loop: the caller's own time with them is no silence
                received_s = time.monotonic()
            ends = {place: end for place, end in ends.items() if reader.position(place) < end}
            silent_s = time.monotonic() - received_s
            if ends and (silent_s > silence_s or stopping()):
                reason = f"no more records of {list(ends)}"
                raise KafkaUnavailable(settings.bootstrap_servers, round(silent_s, 1), reason)
    finally:
        reader.close()
