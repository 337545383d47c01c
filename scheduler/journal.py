"""The scheduler's view of `control` and `fleet`, kept by reading them: a shell around the folds.

`catch_up` reads what is there, from the newest snapshot on; `poll` what comes. Knows which of the
scheduler's own records have not been read back, and whether Kafka is there. One thread. Called by
`scheduler/controller.py`.
"""

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Protocol

from infra.errors import KafkaUnavailable, TopicMissing
from infra.kafka.client import BEGINNING, Partition, Received
from infra.settings import KafkaSettings
from scheduler.decisions.contact import Contact
from scheduler.decisions.decide import View
from scheduler.state import fleet, state
from scheduler.state.state import Decision
from schemas.records import Record, SchedulerClaimed, SchedulerSnapshot, Task
from schemas.topics import CONTROL, FLEET

log = logging.getLogger(__name__)
CONTROL_LOG, FLEET_LOG = (CONTROL.name, 0), (FLEET.name, 0)
CATCH_UP_S = 120.0
READ_BACK_S = 15.0
QUIET_S = 3.0
"""A topic whose end has no record left before it counts as read when nothing comes for so long."""
ASK_AFTER_MS = 2_000
"""Kafka is asked for an answer when nobody wrote to `fleet` for so long."""
ANSWER_S = 1.0

Clock = Callable[[], int]
"""Milliseconds since the epoch."""


class Source(Protocol):
    """What is needed of an `infra.kafka.reader.Reader`."""

    def add(self, offsets: Mapping[Partition, int]) -> None:
        """Reads these partitions as well."""

    def ends(
        self, partitions: Iterable[Partition], timeout_s: float = 30
    ) -> Mapping[Partition, int]:
        """Offset behind the last record of each partition. Raises `KafkaUnavailable`."""

    def poll(self, timeout_s: float) -> list[Received]:
        """What has come."""


class Journal:
    """What was read so far, as a `View`."""

    def __init__(
        self,
        kafka: KafkaSettings,
        reader: Source,
        clock: Clock,
        read_back_s: float = READ_BACK_S,
    ) -> None:
        self.view = View()
        self.offset = -1
        """Of the last record of `control` in the view."""
        self.leader_sign_ms = 0
        """When the scheduler of the newest claim was last heard of."""
        self._kafka = kafka
        self._reader = reader
        self._clock = clock
        self._read_back_s = read_back_s
        self._live = False
        self._snapshot: SchedulerSnapshot | None = None
        self._unread: deque[Record] = deque()
        self._unread_since_ms = 0
        self._told_outage = False

    def catch_up(self) -> None:
        """Reads both topics to their present ends. Raises `KafkaUnavailable` after a deadline."""
        self._read_to_end(FLEET_LOG, BEGINNING)
        self._read_to_end(CONTROL_LOG, self._restore())
        self.view = replace(self.view, contact=Contact(0, self._clock()))
        self._live = True

    def poll(self, timeout_s: float) -> bool:
        """Takes in what has come; whether there was anything. An outage of Kafka is waited for.

        Raises `KafkaUnavailable` when Kafka is there but an own record is not read back in time.
        """
        received = self._reader.poll(timeout_s)
        self._keep_contact(any(item.topic == FLEET.name for item in received))
        for item in received:
            self._take(item)
        waited_ms = self.view.contact.silence_ms(self._unread_since_ms)
        if self._unread and waited_ms > 1000 * self._read_back_s:
            name = type(self._unread[0]).__name__
            reason = f"own {name} was not read back"
            raise KafkaUnavailable(self._kafka.bootstrap_servers, self._read_back_s, reason)
        return bool(received)

    def wrote(self, records: Iterable[Record]) -> None:
        """These were sent to `control`, in this order."""
        self._unread.extend(records)
        self._unread_since_ms = self._clock()

    def issued(self, tasks: Iterable[Task]) -> None:
        """These were sent to `tasks`."""
        groups = self.view.state.ledger.groups
        known: dict[str, Mapping[int, int]] = {
            name: samples for name, samples in self.view.issued.items() if name in groups
        }
        for task in tasks:
            known[task.group_id] = {**known.get(task.group_id, {}), task.sample: task.attempt}
        self.view = replace(self.view, issued=known)

    @property
    def complete(self) -> bool:
        """Whether all own records were read back and Kafka is there: the view tells the present."""
        return not self._unread and not self.view.contact.lost(self._clock())

    @property
    def leader_silence_ms(self) -> int:
        """How long the scheduler of the newest claim was silent, as far as it was listened to."""
        return self.view.contact.silence_ms(self.leader_sign_ms)

    def _keep_contact(self, heard: bool) -> None:
        before = self.view.contact
        if heard or (self._clock() - before.last_ms > ASK_AFTER_MS and self._answered()):
            contact = before.heard(self._clock())
            if self._told_outage:
                away_s = (contact.since_ms - before.last_ms) / 1000
                log.warning("Kafka answers again after %.1f s: decisions go on", away_s)
            self._told_outage = False
            self.view = replace(self.view, contact=contact)
        elif before.lost(self._clock()) and not self._told_outage:
            self._told_outage = True
            servers = self._kafka.bootstrap_servers
            log.warning("no answer from Kafka at %s: decisions wait for it", servers)

    def _answered(self) -> bool:
        try:
            self._reader.ends([FLEET_LOG], ANSWER_S)
        except (KafkaUnavailable, TopicMissing):  # no broker, or one that has just come back
            return False
        return True

    def _restore(self) -> int:
        """Takes the state from the newest snapshot, if it fits; where to read `control` from."""
        snapshot = self._snapshot
        stored = None if snapshot is None else state.from_json(snapshot.state)
        if snapshot is None or stored is None or snapshot.control_offset >= self._end(CONTROL_LOG):
            return BEGINNING
        self.view = replace(self.view, state=stored)
        self.offset = snapshot.control_offset
        return self.offset + 1

    def _end(self, partition: Partition) -> int:
        return self._reader.ends([partition])[partition]

    def _read_to_end(self, partition: Partition, start: int) -> None:
        end = self._end(partition)
        self._reader.add({partition: start})
        if end in (0, start):
            return
        deadline, quiet = time.monotonic() + CATCH_UP_S, time.monotonic()
        while time.monotonic() < deadline:
            received = self._reader.poll(0.1)
            for item in received:
                self._take(item)
            last = max((i.offset for i in received if i.topic == partition[0]), default=-1)
            quiet = time.monotonic() if received else quiet
            if last >= end - 1 or time.monotonic() - quiet > QUIET_S:
                return
        reason = f"{partition[0]} not read to {end}"
        raise KafkaUnavailable(self._kafka.bootstrap_servers, CATCH_UP_S, reason)

    def _take(self, item: Received) -> None:
        """Old records count as of when they were written, new ones as of now."""
        now_ms = self._clock() if self._live else item.timestamp_ms
        record = item.record
        if item.topic == FLEET.name:
            self.view = replace(self.view, fleet=fleet.apply(self.view.fleet, record, now_ms))
        elif item.offset > self.offset:
            self.offset = item.offset
            self.view = replace(self.view, state=state.apply(self.view.state, record))
            if self._unread and self._unread[0] == record:
                self._unread.popleft()
        self._note_leader(record, now_ms)

    def _note_leader(self, record: Record, now_ms: int) -> None:
        if isinstance(record, SchedulerSnapshot):
            self._snapshot = record
        signs = Decision | SchedulerSnapshot | SchedulerClaimed
        if isinstance(record, signs) and record.epoch >= self.view.state.epoch:
            self.leader_sign_ms = max(self.leader_sign_ms, now_ms)
