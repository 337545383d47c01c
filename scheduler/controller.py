"""The scheduler's loop: read, call `decide`, write. It holds no rule itself.

Only one scheduler acts: the one whose claim came first in the newest epoch. It ends when it reads a
newer claim. It decides only after it has read back everything it wrote before. So it makes each
decision on a complete log. It sends a `Task` only after it has read back its `GroupAdmitted`.
During a Kafka outage it decides nothing. Called by `scheduler/bootstrap.py`.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from seamlessflow.infra.errors import KafkaUnavailable, SeamlessFlowError, WrittenReleaseLacks
from seamlessflow.infra.process import collect_seldom, ready
from seamlessflow.infra.telemetry.metrics import Metrics
from seamlessflow.infra.worker.roles import ENDED
from seamlessflow.scheduler.decisions.decide import Outgoing, Rules, decide, finished
from seamlessflow.scheduler.journal import Clock, Journal
from seamlessflow.scheduler.settings import SchedulerSettings, milliseconds
from seamlessflow.scheduler.state import state
from seamlessflow.scheduler.state.unread import GroupLook
from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Record
from seamlessflow.schemas.releases import this_release
from seamlessflow.schemas.topics import ARMS, CONTROL, FLEET, arm_key, fleet_key

TICK_S = 0.1
"""Time after which the scheduler decides even without a record, because deadlines pass."""
ARMS_S = 2.0
"""Deadline for writing the statistics that go before a snapshot."""
LARGEST_SNAPSHOT_BYTES = 900_000
_DECISIONS = "seamlessflow_scheduler_decisions_total"
_STALLS = "seamlessflow_scheduler_stalls_total"
_log = logging.getLogger(__name__)


class Superseded(SeamlessFlowError):
    """Another scheduler claimed a newer epoch, so this one must stop."""

    lasting = True

    def __init__(self, epoch: int, newer: int, scheduler: str) -> None:
        self.epoch = epoch
        self.newer = newer
        self.scheduler = scheduler
        super().__init__(
            f"scheduler {scheduler} claimed epoch {newer}; this one, of epoch {epoch}, stops"
        )


class RecordWriter(Protocol):
    """The methods of `seamlessflow.infra.kafka.producer.Producer` that the scheduler uses."""

    def send(self, topic: str, record: Record, *, key: str | None = None) -> None:
        """Queue the record; return at once."""

    def send_bytes(self, topic: str, value: bytes | None, key: str | bytes | None = None) -> None:
        """Queue an encoded record, or the removal of a key."""

    def check(self) -> None:
        """Raise an earlier record's failure, if there was one."""

    @property
    def sent(self) -> int:
        """Number of records sent so far."""

    def settled(self, number: int) -> bool:
        """Return whether the first `number` records sent are all acknowledged."""

    def flush(self, timeout_s: float) -> None:
        """Wait until all queued records are acknowledged. Raises `KafkaUnavailable`."""


class HeldLetters(Protocol):
    """Dead letters that are kept back until this scheduler acts."""

    def release(self) -> None:
        """Write the letters that are not on their topics yet."""


class GroupLooks(Protocol):
    """Looks at the Kafka consumer groups."""

    def take(self) -> list[GroupLook]:
        """Return the looks since the last call."""


@dataclass(eq=False)
class Controller:
    """One life of a scheduler. `name` is different at each start."""

    _settings: SchedulerSettings
    _rules: Rules
    _producer: RecordWriter
    _journal: Journal
    _clock: Clock
    name: str
    _metrics: Metrics
    _letters: HeldLetters
    _groups: GroupLooks
    epoch: int = 0
    _snapshot_due: float = 0.0
    _arms_sent: int = 0
    """Number of records sent right after the newest statistics were sent."""
    _without_arms: bool = False
    """True if the written release has no statistics."""

    def run(self, stopped: Callable[[], bool]) -> None:
        """Claim an epoch, then decide until `stopped` or the run's end.

        Waits during a Kafka outage. Raises `Superseded`, `KafkaUnavailable` when Kafka does not
        answer at the start, and `DeliveryFailed` when Kafka lost a record.
        """
        collect_seldom()  # statistics for many tasks may be read now
        self._journal.catch_up(stopped)
        if not self._claim(stopped):
            return
        collect_seldom()
        while not stopped() and not finished(self._journal.view.state, self._settings):
            self._journal.poll(TICK_S)
            self._journal.note_looks(self._groups.take())
            self._producer.check()
            # Before deciding: readers would ignore a decision from an epoch that is over.
            self._check_claim()
            if self._journal.complete:
                self._act()
        self._write_snapshot()

    def _claim(self, stopped: Callable[[], bool]) -> bool:
        """Claim epochs until a claim is its epoch's first; return False if stopped before."""
        standby_ms = milliseconds(self._settings.scheduler.standby_s)
        while not stopped():
            if self._journal.leader_absent_ms < standby_ms:
                self._journal.poll(TICK_S)
                continue
            self.epoch = self._journal.view.state.epoch + 1
            # Another scheduler may claim the same epoch: the log decides which claim came first,
            # and the second claims the next epoch.
            claim = r.SchedulerClaimed(epoch=self.epoch, scheduler=self.name, at_ms=self._clock())
            self._write([(CONTROL.name, claim)])
            while not self._journal.complete:
                if stopped():
                    return False
                self._journal.poll(TICK_S)
            self._check_claim()
            if self._journal.view.state.scheduler == self.name:
                ready(_log, "%s acts as of epoch %d", self.name, self.epoch)
                self._letters.release()
                return True
        return False

    def _check_claim(self) -> None:
        present = self._journal.view.state
        if present.epoch > self.epoch:
            raise Superseded(self.epoch, present.epoch, present.scheduler)

    def _act(self) -> None:
        self._write(decide(self._journal.view, self._rules, self._clock()))
        if time.monotonic() >= self._snapshot_due:
            self._snapshot_due = time.monotonic() + self._settings.scheduler.snapshot_s
            self._write_snapshot()

    def _write(self, decided: list[Outgoing]) -> None:
        control: list[Record] = []
        tasks: list[r.Task] = []
        for topic, record in decided:
            self._producer.send(topic, record, key=_key(topic, record))
            self._metrics.counter(_DECISIONS, type=type(record).__name__).inc()
            if isinstance(record, r.ProgressStalled):
                waited_for = record.topic or record.process
                self._metrics.counter(_STALLS, waited_for=waited_for).inc()
            if topic == CONTROL.name:
                control.append(record)
                _log.log(_level(record), "%s", record)
            elif isinstance(record, r.Task):
                tasks.append(record)
        # Only this scheduler's records on `control` change the state, so it waits only for these.
        if control:
            self._journal.note_sent(control)
        if tasks:
            self._journal.note_issued(tasks)

    def _write_snapshot(self) -> None:
        """Write a snapshot. A stand-by scheduler also takes it as this scheduler's heartbeat."""
        if not self._write_arms():
            return
        # Without stored statistics, a successor folds them from the beginning of `control`.
        stored = b"" if self._without_arms else state.to_json(self._journal.view.state)
        snapshot = r.SchedulerSnapshot(
            epoch=self.epoch,
            control_offset=self._journal.offset,
            # A larger state would exceed the size of a Kafka message; a successor then reads all of
            # `control` instead.
            state=stored if len(stored) <= LARGEST_SNAPSHOT_BYTES else b"",
            at_ms=self._clock(),
            release=this_release().version,
        )
        self._write([(FLEET.name, snapshot)])

    def _write_arms(self) -> bool:
        """Write the statistics that changed; return whether Kafka has them.

        A successor reads `control` from the snapshot on, so the statistics must be stored before
        it.
        """
        arms = self._journal.view.arms
        if self._without_arms or not arms.changed:
            return True
        if not self._producer.settled(self._arms_sent):
            return False  # Kafka does not have the earlier ones yet: no more for its queue
        try:
            for snapshot in arms.snapshots(self.epoch, self._journal.offset):
                self._producer.send(ARMS.name, snapshot, key=arm_key(self.epoch, snapshot.arm))
            self._arms_sent = self._producer.sent
            self._producer.flush(ARMS_S)
        except WrittenReleaseLacks as error:
            _log.info("snapshots without a state until the pin is gone: %s", error)
            self._without_arms = True
            return True
        except KafkaUnavailable as error:
            _log.warning("no snapshot this time: %s", error)
            return False
        for older, name in arms.replaced(self.epoch):
            self._producer.send_bytes(ARMS.name, None, arm_key(older, name))
        arms.note_written(self.epoch)
        return True


def _level(record: Record) -> int:
    match record:
        case r.WorkerLost(reason=reason) if reason == ENDED:
            return logging.INFO
        case r.PlanWarning() | r.ProgressStalled() | r.AssignmentTimedOut() | r.WorkerLost():
            return logging.WARNING
        case r.GroupAdmitted():
            return logging.DEBUG
    return logging.INFO


def _key(topic: str, record: Record) -> str | None:
    if topic == FLEET.name:
        return fleet_key(record)
    # `control` has one partition, so its records need no key.
    return record.group_id if isinstance(record, r.Task) else None
