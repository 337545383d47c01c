"""Records behind a session's page, found in the index and read from the log, up to a cut.

They are the events by the session's key, their partition's claims, the trajectory, and the records
on `control` about groups and steps. What retention has removed is left out.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from seamlessflow.console.log.index import KIND_NUMBERS, Cut, PartitionIndex
from seamlessflow.console.log.run_log import RunLog
from seamlessflow.console.views.session.reasons import SessionSources
from seamlessflow.console.views.session.trained_runs import NO_RUNS, trained_runs
from seamlessflow.console.views.session.training import READ
from seamlessflow.infra.kafka.client import LogPartition, Received
from seamlessflow.recorded.judging.late_rewards import LateRewards
from seamlessflow.schemas.arrays import Int64s
from seamlessflow.schemas.identity import session_name
from seamlessflow.schemas.records import (
    AssignReward,
    PartitionClaimed,
    Reward,
    SessionOpened,
    Trajectory,
)
from seamlessflow.schemas.topics import CONTROL, REQUESTS, SESSIONS, TRAJECTORIES

RecordPlaces = list[tuple[LogPartition, int]]


def session_sources(
    run_log: RunLog, cut: Cut, session_id: str, trained: Path | None = None
) -> SessionSources:
    """Return a session's records up to a cut; `trained`: directory with the run's trained tokens.

    Raises what the log's lookup raises.
    """
    events = session_events(run_log, cut, session_id)
    control = _read(
        run_log, list(_of_kinds(run_log, cut, CONTROL.name, [kind.__name__ for kind in READ]))
    )
    records = [item.record for item in control]
    runs = NO_RUNS if trained is None else trained_runs(trained, records, session_id)
    return SessionSources(
        session_id=session_id,
        events=events,
        trajectory=_trajectory(run_log, cut, session_id, events),
        control=control,
        trained=runs,
    )


def session_asked_for(run_log: RunLog, cut: Cut, asked: str) -> str:
    """Return the id of the session that a text names: by its id, else the newest by its name.

    Without such a session, return the text.
    """
    index = run_log.index
    if _opened_last(run_log, cut, index.numbers_of(asked)) is not None:
        return asked
    key = _opened_last(run_log, cut, index.numbers_beginning(f"{asked}~"))
    return asked if key is None else index.keys[key].decode(errors="surrogateescape")


def _opened_last(run_log: RunLog, cut: Cut, keys: list[int]) -> int | None:
    """Return the key of the session that was opened last among these, or None."""
    opened = KIND_NUMBERS[SessionOpened.__name__]
    last: tuple[int, int] | None = None
    for _, partition, rows in _partitions(run_log, cut, SESSIONS.name):
        mine = np.isin(partition.column("key", rows), keys)
        numbers = np.flatnonzero(mine & (partition.column("kind", rows) == opened))
        if len(numbers):
            reached_ms = int(partition.column("reached_ms")[numbers[-1]])
            session = reached_ms, int(partition.column("key")[numbers[-1]])
            last = session if last is None else max(last, session)
    return None if last is None else last[1]


def session_events(run_log: RunLog, cut: Cut, session_id: str) -> list[Received]:
    """Return a session's events and their partition's claims up to a cut, in log order.

    Raises what the log's lookup raises.
    """
    return _read(run_log, list(_events(run_log, cut, session_id)))


def late_rewards_of(
    run_log: RunLog, cut: Cut, session_id: str, events: Sequence[Received]
) -> tuple[Reward, ...]:
    """Return a session's late rewards up to a cut: it ended without them.

    `events`: the session's events. Raises what the log's lookup raises.
    """
    late = LateRewards()
    for item in events:
        late.apply(item.record)
    sent = list(_of_kinds(run_log, cut, REQUESTS.name, [AssignReward.__name__], session_id))
    for item in _read(run_log, sent):
        late.add(item.record)
    return late.by_session().get(session_id, ())


def _events(run_log: RunLog, cut: Cut, session_id: str) -> Iterator[tuple[LogPartition, int]]:
    """Yield the places of a session's events and their partition's claims, in log order."""
    keys = run_log.index.numbers_of(session_id)
    claimed = KIND_NUMBERS[PartitionClaimed.__name__]
    for place, partition, rows in _partitions(run_log, cut, SESSIONS.name):
        mine = np.isin(partition.column("key", rows), keys)
        if mine.any():
            claims = partition.column("kind", rows) == claimed
            yield from _places(place, partition, np.flatnonzero(mine | claims))


def _trajectory(
    run_log: RunLog, cut: Cut, session_id: str, events: list[Received]
) -> Received | None:
    """Return the session's newest trajectory, whose key is the group's, or None."""
    opened = next((item.record for item in events if _opens(item, session_id)), None)
    group_id = getattr(opened, "group_id", None) or session_id
    keys = run_log.index.numbers_of(group_id)
    places: RecordPlaces = []
    for place, partition, rows in _partitions(run_log, cut, TRAJECTORIES.name):
        mine = np.isin(partition.column("key", rows), keys)
        places += _places(place, partition, np.flatnonzero(mine))
    for item in reversed(_read(run_log, places)):
        if isinstance(item.record, Trajectory) and item.record.session_id == session_id:
            return item
    return None


def _opens(item: Received, session_id: str) -> bool:
    return isinstance(item.record, SessionOpened) and item.record.session_id == session_id


def _of_kinds(
    run_log: RunLog, cut: Cut, topic: str, kinds: list[str], session_id: str = ""
) -> Iterator[tuple[LogPartition, int]]:
    """Yield the places of records of these types; `session_id`: only commands about that
    session."""
    numbers = [KIND_NUMBERS[kind] for kind in kinds]
    for place, partition, rows in _partitions(run_log, cut, topic):
        wanted = np.isin(partition.column("kind", rows), numbers)
        if session_id:
            keys = run_log.index.numbers_of(session_name(session_id))
            wanted &= np.isin(partition.column("key", rows), keys)
        yield from _places(place, partition, np.flatnonzero(wanted))


def _partitions(
    run_log: RunLog, cut: Cut, topic: str
) -> Iterator[tuple[LogPartition, PartitionIndex, int]]:
    for place, rows in sorted(cut.items()):
        if place[0] == topic and rows:
            yield place, run_log.index.partitions[place], rows


def _places(place: LogPartition, partition: PartitionIndex, rows: Int64s) -> RecordPlaces:
    return [(place, offset) for offset in partition.column("offset")[rows].tolist()]


def _read(run_log: RunLog, places: RecordPlaces) -> list[Received]:
    return [run_log.decoder.decoded(item) for item in run_log.records(places)]
