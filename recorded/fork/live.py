"""Beginnings for sessions that go on from ended ones, while the run is at work.

The ended session's events are read from its first offset on and folded as the manager folds them.
Copies are kept, since all samples in a group begin with the same one. Called in threads by agents
processes, `recorded/fork/__main__.py`.
"""

import logging
from collections import OrderedDict
from contextlib import closing
from dataclasses import replace
from threading import Lock

from seamlessflow.consumers.trajectories.sessions.partition import LoggedPartition
from seamlessflow.consumers.trajectories.sessions.session import Session
from seamlessflow.infra.clock import Stopping, never
from seamlessflow.infra.errors import KafkaUnavailable
from seamlessflow.infra.kafka.reader import ReadingRules
from seamlessflow.infra.kafka.start.cluster import find_cluster
from seamlessflow.infra.kafka.whole_topic import read_partitions
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.producers.agents.beginnings import NoBeginning
from seamlessflow.recorded.fork.copying import NotForkable, RecordedOn, forked_prefix
from seamlessflow.recorded.select.reading import partition_bounds
from seamlessflow.recorded.select.refold import Refold
from seamlessflow.recorded.select.selection import Range, SessionSelection
from seamlessflow.schemas.records import ForkedPrefix, ParentPlace, SessionOpened
from seamlessflow.schemas.topics import SESSIONS

_KEPT = 32
"""Most copies that are kept; the oldest go first."""
_log = logging.getLogger(__name__)


class RunBeginnings:
    """Copies from one cluster's log; an implementation of `Beginnings`."""

    def __init__(self, kafka: KafkaSettings, stopping: Stopping = never) -> None:
        self._kafka = kafka
        self._stopping = stopping
        self._made: OrderedDict[tuple[ParentPlace, str], ForkedPrefix] = OrderedDict()
        self._lock = Lock()

    def prefix(self, place: ParentPlace, mode: str) -> ForkedPrefix:
        """Return the copy up to a place, one thread at a time. Raises as `Beginnings.prefix`."""
        with self._lock:
            made = self._made.get((place, mode))
            if made is None:
                made = self._made[place, mode] = self._copied(place, mode)
                if len(self._made) > _KEPT:
                    self._made.popitem(last=False)
            return made

    def _copied(self, place: ParentPlace, mode: str) -> ForkedPrefix:
        while True:
            try:
                return self._read(place, mode)
            except KafkaUnavailable as error:
                if self._stopping():
                    raise
                _log.warning("turn %d of session %s: %s", place.turn, place.session_id, error)

    def _read(self, place: ParentPlace, mode: str) -> ForkedPrefix:
        selection = SessionSelection(sessions=frozenset({place.session_id}))
        ((number, bounds),) = partition_bounds(self._kafka, selection, self._stopping).items()
        if place.first_offset < bounds[0]:
            raise NoBeginning(place, "retention removed its events before a session went on")
        fold = Refold(LoggedPartition(number), selection)
        session = self._session(place, fold, bounds)
        if session is None or not 0 < place.turn <= len(session.turns):
            reason = "its events are not on the log" if session is None else "it has no such turn"
            raise NoBeginning(place, reason)
        cluster = find_cluster(self._kafka, [SESSIONS], self._stopping).id
        log = RecordedOn(number, cluster, self._kafka.topic_prefix)
        try:
            made = forked_prefix(session, list(session.turns)[place.turn - 1], log, mode)
        except NotForkable as error:
            raise NoBeginning(place, error.reason) from error
        return replace(made, origin=replace(made.origin, parent_return=place.parent_return))

    def _session(self, place: ParentPlace, fold: Refold, bounds: Range) -> Session | None:
        """Return the ended session, or None if its events are not within the bounds."""
        partition = (SESSIONS.name, fold.log.number)
        records = read_partitions(
            self._kafka,
            [partition],
            starts={partition: place.first_offset},
            ends={partition: bounds[1]},
            rules=ReadingRules(folds=True),
            stopping=self._stopping,
        )
        with closing(records):  # type: ignore[type-var]
            for item in records:
                if isinstance(item.record, SessionOpened) and item.offset == place.first_offset:
                    # Its epoch was in force there; claims before it are not read.
                    fold.log.epoch = item.record.epoch
                session = fold.apply(item.record, item.offset)
                if session is not None:
                    return session
        return None
