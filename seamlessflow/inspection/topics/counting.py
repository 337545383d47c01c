"""Counting of records by reading them: offsets alone do not say how many there are.

Reads up to the present end of each partition, no longer than a limit, and decodes nothing.
"""

import time
from collections.abc import Sequence

from seamlessflow.infra.kafka.whole_topic import read_partitions
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.inspection.topics.state import TopicState, with_records
from seamlessflow.schemas.records import Record


class CountedRecord(Record):
    """Stand-in for any record: its bytes do not matter."""


def with_counts(
    settings: KafkaSettings, states: Sequence[TopicState], limit_s: float
) -> list[TopicState]:
    """Return the states with their records; short topics are counted first.

    Once `limit_s` is over, the rest has the records that were read so far. Raises what
    `read_partitions` raises.
    """
    until_s = time.monotonic() + limit_s
    ascending = sorted(states, key=lambda state: state.offsets)
    counted = {state.name: _count(settings, state, until_s) for state in ascending}
    return [with_records(state, *counted[state.name]) for state in states]


def _count(settings: KafkaSettings, state: TopicState, until_s: float) -> tuple[int, bool]:
    """Return the number of records, and False if the time was over before the end."""
    if not state.offsets:
        return 0, True
    number, record = 0, CountedRecord()
    if time.monotonic() > until_s:
        return number, False
    places = [(state.name, partition) for partition in range(state.partitions)]
    for _ in read_partitions(settings, places, decode=lambda _: record):
        number += 1
        if time.monotonic() > until_s:
            return number, False
    return number, True
