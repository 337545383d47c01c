"""The run at any moment: the index, and the folds with their checkpoints. Any thread.

The follower appends; pages ask. A page gets a picture of one cut, which no later record changes.
"""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from seamlessflow.console.log.checkpoints import Checkpoints, folded_on
from seamlessflow.console.log.index import Cut, IndexRow, LogIndex, kind_of
from seamlessflow.console.log.lookup import Ranges, RawDecoder
from seamlessflow.console.log.moment import Moment
from seamlessflow.console.models.control import ControlFold
from seamlessflow.console.models.course import Course
from seamlessflow.console.models.fleet import FleetFold
from seamlessflow.console.models.sessions import SessionsFold
from seamlessflow.infra.kafka.client import LogPartition, Received
from seamlessflow.infra.kafka.unreadable import Raw, Unreadable
from seamlessflow.schemas.topics import CONTROL, FLEET, SESSIONS

AnyFold = ControlFold | FleetFold | SessionsFold
Decoded = Callable[[Received], Received]
_CONTROL = (CONTROL.name, 0)
_COPIES = {CONTROL.name: (256, 256), FLEET.name: (512, 256), SESSIONS.name: (16, 512)}
"""By topic, the records between two copies at first, and the most copies.

For a moment, half as many records are read from each partition on average. `sessions` has many
partitions, and its copies are small.
"""


@dataclass(frozen=True)
class RunPicture:
    """A run at a moment."""

    moment: Moment | None
    """None: now."""
    at_ms: int
    cut: Cut
    control: ControlFold
    fleet: FleetFold
    sessions: Mapping[int, SessionsFold] = field(default_factory=dict)
    """By partition."""


class Lookup(Protocol):
    """Raw records by their places on the log. Raises `KafkaUnavailable`."""

    def ranges(self, ranges: Ranges) -> Mapping[LogPartition, Sequence[Received]]:
        """Return the records in ranges, without missing ones."""
        ...

    def raw(
        self, offsets: Mapping[LogPartition, Sequence[int]]
    ) -> Mapping[tuple[LogPartition, int], Received]:
        """Return records by partition and offset, without missing ones."""
        ...


class RunLog:
    """Index and folds of one log."""

    def __init__(self, lookup: Lookup, decoder: RawDecoder) -> None:
        self.index = LogIndex()
        self.course = Course()
        self.decoder = decoder
        self._lookup = lookup
        self._folds: dict[LogPartition, Checkpoints[AnyFold]] = {}
        self._changing = threading.RLock()

    def append(self, items: Sequence[Received]) -> None:
        """Take new raw records, each partition's in order; leave out those that it already has."""
        fresh: dict[LogPartition, list[IndexRow]] = {}
        with self._changing:
            for item in items:
                place = item.topic, item.partition
                partition = self.index.partitions.get(place)
                end = 0 if partition is None else partition.end(partition.rows)
                rows = fresh.setdefault(place, [])
                if item.offset >= (rows[-1].offset + 1 if rows else end):
                    rows.append(_row(item))
                    self._fold(place, item)
            self.index.append({place: rows for place, rows in fresh.items() if rows})

    def picture(self, moment: Moment | None) -> RunPicture:
        """Return the run at a moment. Raises `MomentNotOnLog` and what the lookup raises."""
        with self._changing:
            cut = self.index.whole() if moment is None else self.index.cut(moment)
            at_ms = self.index.time(cut)
            starts = {
                place: (self._end(cut, place), *fold.nearest(self._end(cut, place)))
                for place, fold in self._folds.items()
            }
        ranges = {place: (start, end) for place, (end, start, _) in starts.items() if start < end}
        read = self._lookup.ranges(ranges)
        states: dict[LogPartition, AnyFold] = {}
        for place, (end, _, state) in starts.items():
            raw = read.get(place, ())
            decoded = self.decoder.decoded
            fleet = place[0] == FLEET.name
            items = newest_by_key(raw, decoded) if fleet else map(decoded, raw)
            states[place] = folded_on(state, items)
            if place in ranges:
                with self._changing:
                    self._folds[place].keep(end, states[place])
        return picture_of(moment, at_ms, cut, states)

    def outline(self, moment: Moment | None) -> RunPicture:
        """Return only a moment's cut and time. Raises `MomentNotOnLog`."""
        with self._changing:
            cut = self.index.whole() if moment is None else self.index.cut(moment)
            return picture_of(moment, self.index.time(cut), cut, {})

    def records(self, places: Sequence[tuple[LogPartition, int]]) -> list[Received]:
        """Return raw records by partition and offset, in the order asked for, without missing ones.

        Raises what the lookup raises.
        """
        offsets: dict[LogPartition, list[int]] = {}
        for place, offset in places:
            offsets.setdefault(place, []).append(offset)
        read = self._lookup.raw(offsets)
        return [read[place] for place in places if place in read]

    def range(self, place: LogPartition, first: int, end: int) -> Sequence[Received]:
        """Return the raw records in a range of offsets, without missing ones.

        Raises what the lookup raises.
        """
        return self._lookup.ranges({place: (first, end)}).get(place, ())

    def control_end(self, cut: Cut) -> int:
        """Return the offset behind a cut's last record on `control`."""
        return self._end(cut, _CONTROL)

    @property
    def copies(self) -> int:
        """Number of copies over all folds."""
        return sum(fold.copies for fold in self._folds.values())

    def _end(self, cut: Cut, place: LogPartition) -> int:
        partition = self.index.partitions.get(place)
        return 0 if partition is None else partition.end(cut.get(place, 0))

    def _fold(self, place: LogPartition, item: Received) -> None:
        fold = self._folds.get(place)
        if fold is None:
            first = first_fold(place)
            if first is None:
                return
            fold = self._folds[place] = Checkpoints(first, *_COPIES[place[0]])
        decoded = self.decoder.decoded(item)
        fold.apply(decoded)
        if place == _CONTROL:
            self.course.note(decoded)


def first_fold(place: LogPartition) -> AnyFold | None:
    """Return a partition's empty fold, or None if no page folds its topic."""
    match place:
        case (CONTROL.name, _):
            return ControlFold()
        case (FLEET.name, _):
            return FleetFold()
        case (SESSIONS.name, number):
            return SessionsFold(number)
    return None


def newest_by_key(items: Sequence[Received], decoded: Decoded) -> Iterator[Received]:
    """Return the items that compaction would keep, in log order.

    An item is left out if a later readable one has the same key.
    """
    newest: list[Received] = []
    keys: set[bytes] = set()
    for item in reversed(items):
        key = item.record.key if isinstance(item.record, Raw) else None
        if key is None or key not in keys:
            newest.append(decoded(item))
            if key is not None and not isinstance(newest[-1].record, Unreadable):
                keys.add(key)
    return reversed(newest)


def picture_of(
    moment: Moment | None, at_ms: int, cut: Cut, states: Mapping[LogPartition, AnyFold]
) -> RunPicture:
    """Return the picture that these states make up."""
    control = states.get((CONTROL.name, 0))
    fleet = states.get((FLEET.name, 0))
    return RunPicture(
        moment=moment,
        at_ms=at_ms,
        cut=cut,
        control=control if isinstance(control, ControlFold) else ControlFold(),
        fleet=fleet if isinstance(fleet, FleetFold) else FleetFold(),
        sessions={
            number: state
            for (_, number), state in sorted(states.items())
            if isinstance(state, SessionsFold) and state.events
        },
    )


def _row(item: Received) -> IndexRow:
    if isinstance(item.record, Raw):
        key = item.record.key
        return IndexRow(item.offset, item.timestamp_ms, kind_of(item.record.value), key, item.size)
    return IndexRow(item.offset, item.timestamp_ms, kind_of(b"?"), None, item.size)
