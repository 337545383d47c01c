"""The scheduler's `View`, kept up to date by folding in records from `control` and `fleet`.

`catch_up` reads both topics and `arms` to their ends, `control` from the newest snapshot. `poll`
reads later records. The journal also knows which of the scheduler's own records it has not read
back yet, and whether Kafka answers. Not thread-safe. Called by `scheduler/controller.py`.
"""

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from seamlessflow.infra.clock import Stopping, never
from seamlessflow.infra.errors import KafkaUnavailable, TopicMissing
from seamlessflow.infra.kafka.client import BEGINNING, LogPartition, Received
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.scheduler.decisions.decide import View
from seamlessflow.scheduler.decisions.membership import Contact
from seamlessflow.scheduler.state import fleet, state, unread
from seamlessflow.scheduler.state.state import SchedulerDecision
from seamlessflow.scheduler.state.unread import GroupLook
from seamlessflow.schemas.records import (
    ArmSnapshot,
    Record,
    SchedulerClaimed,
    SchedulerSnapshot,
    Task,
)
from seamlessflow.schemas.topics import ARMS, CONTROL, FLEET

_log = logging.getLogger(__name__)
CONTROL_LOG = (CONTROL.name, 0)
FLEET_LOG = (FLEET.name, 0)
ARMS_LOG = (ARMS.name, 0)
CATCH_UP_S = 120.0
READ_BACK_S = 15.0
QUIET_S = 3.0
"""Time without a record from a topic after which the topic counts as read.

If its last records were compacted away, or a transaction ended there, no record at its end will
come.
"""
ARMS_QUIET_S = 30.0
"""The same time for `arms`: statistics that were not read would be missing for ever."""
ASK_AFTER_MS = 2_000
"""Time without a record on `fleet` after which the journal asks Kafka for an answer."""
ANSWER_S = 1.0
"""Deadline for that answer."""

READER_OPTIONS: Mapping[str, Any] = {"fetch.wait.max.ms": 100}
"""Reader options: a question for an end, and an added partition, each wait for a fetch."""

Clock = Callable[[], int]
"""Milliseconds since the epoch."""


class JournalReader(Protocol):
    """The methods of `seamlessflow.infra.kafka.reader.Reader` that the journal uses."""

    def add(self, offsets: Mapping[LogPartition, int]) -> None:
        """Read these partitions too, from these offsets."""

    def remove(self, partitions: Iterable[LogPartition]) -> None:
        """Stop reading these partitions."""

    def ends(
        self, partitions: Iterable[LogPartition], limit_s: float | None = None
    ) -> Mapping[LogPartition, int]:
        """Return the offset after each partition's last record.

        Raises `KafkaUnavailable`.
        """

    def position(self, partition: LogPartition) -> int:
        """Return the next record's offset in a partition that is read."""

    def poll(self, timeout_s: float) -> list[Received]:
        """Return the records that arrived, waiting at most `timeout_s` for the first."""


@dataclass(eq=False)
class Journal:
    """The records read so far, folded into `view`."""

    _kafka: KafkaSettings
    _reader: JournalReader
    _clock: Clock
    _read_back_s: float = READ_BACK_S
    view: View = field(default_factory=View)
    offset: int = -1
    """Offset of the view's last `control` record."""
    leader_seen_ms: int = 0
    """When the scheduler with the newest claim last wrote a record."""
    _live: bool = False
    _arms_read: list[ArmSnapshot] = field(default_factory=list)
    _snapshot: SchedulerSnapshot | None = None
    _unread: deque[Record] = field(default_factory=deque)
    _unread_since_ms: int = 0
    _outage_logged: bool = False
    _stopping: Stopping = never

    def catch_up(self, stopping: Stopping = never) -> None:
        """Read all topics to their current ends.

        Raises `KafkaUnavailable` after a deadline, and once `stopping`.
        """
        self._stopping = stopping
        # `fleet` first: it holds the newest snapshot, which shows where to begin on `control`.
        self._read_to_end(FLEET_LOG, BEGINNING, self._end(FLEET_LOG))
        # An acting scheduler may write to all topics meanwhile. Statistics read up to here cover
        # everything that this snapshot covers, but perhaps not what a later snapshot covers;
        # `control` covers both.
        snapshot = self._snapshot
        self._read_to_end(ARMS_LOG, BEGINNING, self._end(ARMS_LOG), ARMS_QUIET_S)
        end = self._end(CONTROL_LOG)
        self._reader.remove([ARMS_LOG])  # from here on the view is ahead of `arms`
        for record in self._arms_read:
            self.view.arms.restore(record, end)
        self._arms_read.clear()
        self._read_to_end(CONTROL_LOG, self._restore(snapshot, end), end)
        self.view = replace(self.view, contact=Contact(0, self._clock()))
        self._live = True

    def poll(self, timeout_s: float) -> None:
        """Apply the records that arrive within `timeout_s`.

        Raises `KafkaUnavailable` if Kafka answers but one of the scheduler's own records is not
        read back in time.
        """
        received = self._reader.poll(timeout_s)
        self._keep_contact(any(item.topic == FLEET.name for item in received))
        for item in received:
            self._apply(item)
        # Time without contact does not count: the producer sends the record after an outage.
        waited_ms = self.view.contact.waited_ms(self._unread_since_ms)
        if self._unread and waited_ms > 1000 * self._read_back_s:
            name = type(self._unread[0]).__name__
            reason = f"own {name} was not read back"
            raise KafkaUnavailable(self._kafka.bootstrap_servers, self._read_back_s, reason)

    def note_sent(self, records: Iterable[Record]) -> None:
        """Expect to read these records back from `control`, in this order."""
        self._unread.extend(records)
        self._unread_since_ms = self._clock()

    def note_issued(self, tasks: Iterable[Task]) -> None:
        """Note that these tasks were sent, and forget tasks for groups that have ended."""
        self.view = self.view.with_issued(tasks)

    def note_looks(self, looks: Iterable[GroupLook]) -> None:
        """Fold in looks at Kafka consumer groups."""
        for look in looks:
            seen = unread.apply(self.view.unread, look, self._clock())
            self.view = replace(self.view, unread=seen)

    @property
    def complete(self) -> bool:
        """True if all own records are read back and Kafka answers, so that the view is current."""
        return not self._unread and not self.view.contact.lost(self._clock())

    @property
    def leader_absent_ms(self) -> int:
        """Time in contact with Kafka without a record from the scheduler with the newest claim."""
        return self.view.contact.waited_ms(self.leader_seen_ms)

    def _keep_contact(self, fleet_record_came: bool) -> None:
        before = self.view.contact
        if fleet_record_came or (
            self._clock() - before.last_ms > ASK_AFTER_MS and self._answered()
        ):
            contact = before.renewed(self._clock())
            if self._outage_logged:
                away_s = (contact.since_ms - before.last_ms) / 1000
                _log.warning("Kafka answers again after %.1f s: decisions go on", away_s)
            self._outage_logged = False
            self.view = replace(self.view, contact=contact)
        elif before.lost(self._clock()) and not self._outage_logged:
            self._outage_logged = True
            servers = self._kafka.bootstrap_servers
            _log.warning("no answer from Kafka at %s: decisions wait for it", servers)

    def _answered(self) -> bool:
        try:
            self._reader.ends([FLEET_LOG], ANSWER_S)
        except (KafkaUnavailable, TopicMissing):  # a broker that just restarted knows no topics yet
            return False
        return True

    def _restore(self, snapshot: SchedulerSnapshot | None, end: int) -> int:
        """Restore the state from a snapshot, if it fits this log and this release.

        Returns the offset from which to read `control`, whose end is `end`.
        """
        stored = None if snapshot is None else state.from_json(snapshot.state)
        if stored is not None and not stored.begins_as(self.view.state):
            stored = None  # it was folded for other policies
        # If `control` does not have the snapshot's offset, an earlier log made the snapshot.
        if snapshot is None or stored is None or snapshot.control_offset >= end:
            return BEGINNING
        self.view = replace(self.view, state=stored)
        self.offset = snapshot.control_offset
        return self.offset + 1

    def _end(self, partition: LogPartition) -> int:
        return self._reader.ends([partition])[partition]

    def _read_to_end(
        self, partition: LogPartition, start: int, end: int, quiet_s: float = QUIET_S
    ) -> None:
        self._reader.add({partition: start})
        if end in (0, start):
            return
        deadline = time.monotonic() + CATCH_UP_S
        quiet = time.monotonic()
        position = start
        while time.monotonic() < deadline and not self._stopping():
            for item in self._reader.poll(0.1):
                self._apply(item)
            # Not the last record's offset: `arms` may end with removals, which are not records, and
            # `fleet` records come meanwhile.
            before, position = position, self._reader.position(partition)
            quiet = time.monotonic() if position != before else quiet
            if position >= end or (time.monotonic() - quiet > quiet_s and self._answered()):
                return
        reason = f"{partition[0]} not read to {end}"
        raise KafkaUnavailable(self._kafka.bootstrap_servers, CATCH_UP_S, reason)

    def _apply(self, item: Received) -> None:
        """Fold a record in, dated by its own stamp if read at start, else by the clock."""
        now_ms = self._clock() if self._live else item.timestamp_ms
        record = item.record
        if item.topic == FLEET.name:
            self.view = replace(self.view, fleet=fleet.apply(self.view.fleet, record, now_ms))
        elif item.topic == ARMS.name:
            if isinstance(record, ArmSnapshot):
                self._arms_read.append(record)
            return
        elif item.offset > self.offset:
            self.offset = item.offset
            self.view.arms.apply(self.view.state, record, item.offset)
            self.view = replace(self.view, state=state.apply(self.view.state, record))
            # Own records come back in sending order, among other processes' records.
            if self._unread and self._unread[0] == record:
                self._unread.popleft()
        self._note_leader(record, now_ms)

    def _note_leader(self, record: Record, now_ms: int) -> None:
        if isinstance(record, SchedulerSnapshot):
            self._snapshot = record
        signs = SchedulerDecision | SchedulerSnapshot | SchedulerClaimed
        if isinstance(record, signs) and record.epoch >= self.view.state.epoch:
            self.leader_seen_ms = max(self.leader_seen_ms, now_ms)
