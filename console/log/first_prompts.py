"""First prompts of sessions, found in the index and read from the log. Any thread.

A session's first event is known by its offset, so only the rows behind it are looked at.
"""

from collections.abc import Mapping

import numpy as np

from seamlessflow.console.log.index import KIND_NUMBERS, Cut, PartitionIndex
from seamlessflow.console.log.run_log import RunLog
from seamlessflow.infra.kafka.client import LogPartition
from seamlessflow.recorded.trace.row import of_kind
from seamlessflow.schemas.records import TurnStarted
from seamlessflow.schemas.topics import SESSIONS

_ROWS = 2_000
"""Rows behind a session's first event in which its first turn must begin."""
_MOST_BYTES = 65_536
"""Larger records are not read: a list of prompts shows only their beginnings."""


def first_prompts(
    run_log: RunLog, cut: Cut, first_offsets: Mapping[str, int]
) -> dict[str, TurnStarted]:
    """Return the first turn of each session, by session id. Missing and large ones are left out.

    `first_offsets`: the offset of each session's first event on `sessions`. Raises what the log's
    lookup raises.
    """
    places = [_first_turn(run_log, cut, *session) for session in first_offsets.items()]
    items = run_log.records([place for place in places if place is not None])
    turns = of_kind(map(run_log.decoder.decoded, items), TurnStarted)
    return {turn.session_id: turn for turn, _ in turns}


def _first_turn(
    run_log: RunLog, cut: Cut, session_id: str, first_offset: int
) -> tuple[LogPartition, int] | None:
    """Return the place of a session's first turn, if it is near the first event and small."""
    for key in run_log.index.numbers_of(session_id):
        for place, rows in cut.items():
            if place[0] == SESSIONS.name:
                partition = run_log.index.partitions[place]
                row = _row_of_turn(partition, rows, key, first_offset)
                if row is not None and partition.column("size")[row] <= _MOST_BYTES:
                    return place, int(partition.column("offset")[row])
    return None


def _row_of_turn(partition: PartitionIndex, rows: int, key: int, first_offset: int) -> int | None:
    """Return the row of the first turn behind a session's first event, or None if none is near."""
    first = partition.row_of(first_offset)
    if not 0 <= first < rows or partition.column("key")[first] != key:
        return None
    last = min(rows, first + _ROWS)
    started = KIND_NUMBERS[TurnStarted.__name__]
    mine = partition.column("key", last)[first:] == key
    turns = np.flatnonzero(mine & (partition.column("kind", last)[first:] == started))
    return first + int(turns[0]) if len(turns) else None
