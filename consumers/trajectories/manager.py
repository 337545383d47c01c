"""The trajectory manager's process: threads that read, one loop that folds, decides and writes.

`requests` is read as a member of a consumer group; the same partitions of `sessions` are assigned
by hand. A partition is acted on once this manager's claim was read back as the first of its epoch:
everything before it is folded by then. Reading a newer claim ends acting at once.
"""

import gc
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from uuid import uuid4

from consumers.trajectories.actor import Actor, now_ms
from consumers.trajectories.committer import Committer, Job
from consumers.trajectories.decide import Command
from consumers.trajectories.fleet import Fleet
from consumers.trajectories.fold import Folded
from consumers.trajectories.messages import Strictness
from consumers.trajectories.partition import Partition, Progress
from consumers.trajectories.renderers import Renderers
from consumers.trajectories.settings import ManagerSettings
from infra.kafka import BEGINNING, Received
from infra.kafka_producer import Producer
from infra.kafka_reader import Reader
from infra.metrics import Metrics
from infra.reading import ReaderThread
from infra.telemetry import metrics_export, telemetry
from schemas.records import CountTokens, PartitionClaimed, PolicyWeights
from schemas.topics import CONTROL, FLEET, REQUESTS, SESSIONS

log = logging.getLogger(__name__)
_REVOKE_TIMEOUT_S = 20
_CATCH_UP_TIMEOUT_S = 60
_OFFSETS_ONLY_EVERY = 5
_LONGEST_DRAIN_S = 0.05
"""Deadlines and commits are looked at this often, however much comes in."""
_GC_THRESHOLDS = (50_000, 20, 100)
"""Sessions live long and hold no cycles: looking through them often halves a rebuild's speed."""
_TRAJECTORIES = "seamlessflow_manager_trajectories_total"
_OPEN_SESSIONS = "seamlessflow_manager_open_sessions"


@dataclass(frozen=True, slots=True)
class Assigned:
    """The group gave partitions to this member; progress as committed."""

    partitions: dict[int, tuple[int, Progress]]


@dataclass(frozen=True, slots=True)
class RequestsEnd:
    """Where `requests` ended when `owner` owned the partition."""

    partition: int
    owner: str
    offset: int


@dataclass(frozen=True, slots=True)
class Revoked:
    """The group takes partitions; it waits for `done`."""

    partitions: list[int]
    done: threading.Event


@dataclass(frozen=True, slots=True)
class Reading:
    """From here on the events of these partitions are read for the given assignment."""

    partitions: list[int]
    assignment: int


@dataclass(frozen=True, slots=True)
class Committed:
    """A transaction is over."""

    job: Job
    took: bool


Item = list[Received] | Assigned | Reading | RequestsEnd | Revoked | Committed | BaseException


class Manager:
    """One member of the group of trajectory managers."""

    def __init__(self, settings: ManagerSettings, clock: Callable[[], int] = now_ms) -> None:
        self._settings = settings
        self._now_ms = clock
        self._id = f"manager-{settings.manager.slot}-{uuid4().hex[:8]}"
        self._inbox: SimpleQueue[Item] = SimpleQueue()
        self._partitions: dict[int, Partition] = {}
        self._held: dict[int, list[Received]] = {}
        """Commands of partitions that are not owned yet."""
        self._awaited: dict[int, int] = {}
        """Assignment that a partition's events are not read for yet; what comes before that was
        under way for an earlier one."""
        self._replies: dict[int, list[tuple[Received, Folded]]] = {}
        """Events found while rebuilding whose replies nobody may have sent."""
        self._ends_wanted: SimpleQueue[tuple[int, str]] = SimpleQueue()
        """Partitions that are owned, and by which assignment."""
        self._renderers = Renderers()
        self._fleet = Fleet()
        self._telemetry = telemetry(settings.telemetry, "manager", self._id)
        self._metrics = Metrics()
        self._export = metrics_export(settings.telemetry, self._metrics, "manager", self._id)
        kafka = settings.kafka
        self._producer = Producer(kafka, self._id)
        self._letters = Producer(kafka, f"{self._id}-dead-letters")
        self._fleet_reader = self._reader("fleet")
        self._requests = self._reader("requests", group=settings.manager.group)
        self._sessions = self._reader("sessions")
        self._committer = Committer(
            kafka,
            settings.manager.slot,
            self._producer,
            self._requests,
            settings.manager.group,
            lambda job, took: self._inbox.put(Committed(job, took)),
        )
        self._actor = Actor(
            self._producer,
            self._fleet,
            self._renderers.of,
            self._partitions,
            int(settings.manager.no_progress_s * 1000),
            int(settings.manager.hand_back_s * 1000),
            self._telemetry,
            self._metrics,
            clock,
        )
        self._in_flight: dict[int, Partition] | None = None
        """Partitions of the job that is being committed, until its end was handled here."""
        self._assignments = 0
        self._leaving = False
        self._next_commit = 0.0
        self._commits = 0

    def run(self, stopping: Callable[[], bool]) -> None:
        """Serves until `stopping`; raises what makes going on impossible."""
        gc.set_threshold(*_GC_THRESHOLDS)
        self._learn_the_fleet()
        self._join_the_group()
        self._sessions.start()
        try:
            while not stopping():
                self._turn()
        finally:
            self._close()

    def _turn(self) -> None:
        wait = min(self._actor.next_alarm_s(), max(0.0, self._next_commit - time.monotonic()))
        try:
            self._handle(self._inbox.get(timeout=max(wait, 0.001)))
            until = time.monotonic() + _LONGEST_DRAIN_S
            while time.monotonic() < until:
                self._handle(self._inbox.get_nowait())
        except Empty:
            pass
        self._actor.overdue()
        self._actor.serve_waiting()
        self._commit()

    def _handle(self, item: Item) -> None:
        match item:
            case Assigned():
                self._assign(item)
            case Reading():
                self._begin(item)
            case RequestsEnd():
                self._end_known(item)
            case Revoked():
                self._revoke(item)
            case Committed():
                self._committed(item)
            case BaseException():
                raise item
            case _:
                for received in item:
                    self._receive(received)

    def _receive(self, received: Received) -> None:
        if received.topic == SESSIONS.name:
            self._session_event(received)
        elif received.topic == REQUESTS.name:
            self._command(received)
        else:
            self._fleet_record(received)

    def _command(self, received: Received) -> None:
        partition = self._partitions.get(received.partition)
        if partition is None:
            return
        if not isinstance(received.record, Command | CountTokens):
            self._actor.bury(received, "not a command")
            return
        if partition.owned:
            self._actor.command(partition, received)
        else:
            self._held[received.partition].append(received)

    def _session_event(self, received: Received) -> None:
        partition = self._partitions.get(received.partition)
        if partition is None or partition.number in self._awaited:
            return
        owned = partition.owned
        folded = partition.fold(received, self._strictness)
        if isinstance(received.record, PartitionClaimed):
            self._claimed(partition, received.record)
        elif owned:
            self._actor.folded(partition, received, folded)
        else:
            self._rebuild(partition, received, folded)

    def _rebuild(self, partition: Partition, received: Received, folded: Folded) -> None:
        session = folded.session
        covered = received.offset < partition.progress.covered
        if not covered:
            self._replies[partition.number].append((received, folded))
        if session is not None and session.finalized_at_ms is not None and folded.accepted:
            if not covered:
                partition.emit(session)
            partition.end(session)

    def _claimed(self, partition: Partition, claim: PartitionClaimed) -> None:
        if partition.fenced:
            log.warning("partition %d was claimed by %s", partition.number, claim.manager)
            self._forget([partition.number])
            return
        if claim.manager != partition.manager:
            return
        if not partition.owned:
            self._claim(partition)
            return
        log.debug("owns partition %d from epoch %d", partition.number, claim.epoch)
        self._ask_for_end(partition.number, partition.manager)
        for received, folded in self._replies.pop(partition.number):
            if folded.accepted:
                self._actor.reply(received, folded)
        self._actor.reconcile(partition)
        for received in self._held.pop(partition.number):
            self._actor.command(partition, received)

    def _ask_for_end(self, number: int, owner: str) -> None:
        self._ends_wanted.put((number, owner))
        self._requests.call(self._look_for_ends)

    def _look_for_ends(self, reader: Reader) -> None:
        """In the reader's thread; at once for all partitions that are owned meanwhile."""
        wanted: dict[tuple[str, int], str] = {}
        while not self._ends_wanted.empty():
            number, owner = self._ends_wanted.get()
            wanted[REQUESTS.name, number] = owner
        if wanted:
            for place, offset in reader.ends(wanted).items():
                self._inbox.put(RequestsEnd(place[1], wanted[place], offset))

    def _end_known(self, end: RequestsEnd) -> None:
        partition = self._partitions.get(end.partition)
        if partition is not None and partition.manager == end.owner:
            partition.read_again_to = end.offset

    def _claim(self, partition: Partition) -> None:
        epoch = max(partition.epoch, partition.progress.epoch) + 1
        claim = PartitionClaimed(
            partition=partition.number,
            epoch=epoch,
            manager=partition.manager,
            at_ms=self._now_ms(),
        )
        self._producer.send(SESSIONS.name, claim, partition=partition.number)

    def _assign(self, assigned: Assigned) -> None:
        self._assignments += 1
        owner = f"{self._id}.{self._assignments}"  # a claim of an earlier assignment is not ours
        for number, (offset, progress) in assigned.partitions.items():
            partition = Partition(number, progress, owner, next_request=offset, read_again_to=None)
            self._partitions[number] = partition
            self._held[number], self._replies[number] = [], []
            self._awaited[number] = self._assignments
            self._claim(partition)
        starts = {
            (SESSIONS.name, number): progress.rebuild if progress.rebuild >= 0 else BEGINNING
            for number, (_, progress) in assigned.partitions.items()
        }
        reading = Reading(list(assigned.partitions), self._assignments)

        def begin(reader: Reader) -> None:
            reader.add(starts)
            self._inbox.put(reading)

        self._sessions.call(begin)

    def _begin(self, reading: Reading) -> None:
        for number in reading.partitions:
            if self._awaited.get(number) == reading.assignment:
                del self._awaited[number]

    def _revoke(self, revoked: Revoked) -> None:
        self._committer.idle.wait(_REVOKE_TIMEOUT_S)
        self._forget([number for number in revoked.partitions if number in self._partitions])
        revoked.done.set()

    def _forget(self, numbers: list[int]) -> None:
        for number in numbers:
            del self._partitions[number]
            self._awaited.pop(number, None)
            self._held.pop(number, None)
            self._replies.pop(number, None)
        gone = [(SESSIONS.name, number) for number in numbers]
        if gone:
            self._sessions.call(lambda reader: reader.remove(gone))

    def _fleet_record(self, received: Received) -> None:
        record = received.record
        if isinstance(record, PolicyWeights):
            self._renderers.hear(record)
        departure = self._fleet.apply(record, self._now_ms())
        if departure is None:
            return
        if departure.at_once:
            self._actor.departed(departure.worker, departure.incarnation)
        else:
            self._actor.doubt(departure.worker)

    def _commit(self) -> None:
        if time.monotonic() < self._next_commit or self._in_flight is not None:
            return
        self._next_commit = time.monotonic() + self._settings.manager.commit_interval_s
        self._commits += 1
        self._metrics.gauge(_OPEN_SESSIONS).set(
            sum(len(partition.sessions) for partition in self._partitions.values())
        )
        owned = [partition for partition in self._partitions.values() if partition.owned]
        offsets_too = self._commits % _OFFSETS_ONLY_EVERY == 0
        if offsets_too:
            self._actor.recount()
        chosen = [one for one in owned if one.emitted or (offsets_too and one.uncommitted)]
        if chosen:
            self._in_flight = {one.number: one for one in chosen}
            self._committer.submit(
                Job(
                    {one.number: tuple(one.emitted) for one in chosen},
                    {one.number: one.committable() for one in chosen},
                    self._producer.sent,
                )
            )

    def _committed(self, committed: Committed) -> None:
        partitions, self._in_flight = self._in_flight or {}, None
        if not committed.took:
            return
        for number, trajectories in committed.job.trajectories.items():
            self._metrics.counter(_TRAJECTORIES).inc(len(trajectories))
            partitions[number].committed(len(trajectories), committed.job.offsets[number])

    def _strictness(self, policy: str) -> Strictness:
        known = self._fleet.policies.get(policy)
        return known.strictness if known else "arguments"  # type: ignore[return-value]

    def _reader(self, name: str, group: str | None = None) -> ReaderThread:
        reader = Reader(
            self._settings.kafka,
            f"{self._id}-{name}",
            group=group,
            dead_letters=self._letters,
            **({"group.remote.assignor": "uniform"} if group else {}),
        )
        return ReaderThread(f"{name} reader", reader, self._inbox.put, self._inbox.put)

    def _learn_the_fleet(self) -> None:
        """Reads `fleet` to its end: without policies and workers nothing can be decided."""
        self._fleet_reader.start()
        topics = [(FLEET.name, 0), (CONTROL.name, 0)]
        ends = self._fleet_reader.ask(lambda reader: reader.ends(topics))
        starts = {(FLEET.name, 0): BEGINNING, (CONTROL.name, 0): ends[CONTROL.name, 0]}
        self._fleet_reader.call(lambda reader: reader.assign(starts))
        self._fleet_reader.await_position((FLEET.name, 0), ends[FLEET.name, 0], _CATCH_UP_TIMEOUT_S)

    def _join_the_group(self) -> None:
        reader_thread = self._requests

        def assigned(partitions: list[tuple[str, int]]) -> None:
            found = reader_thread.reader.committed(partitions)
            self._inbox.put(
                Assigned(
                    {
                        number: (max(offset, 0), Progress.decode(metadata))
                        for (_, number), (offset, metadata) in found.items()
                    }
                )
            )

        def revoked(partitions: list[tuple[str, int]]) -> None:
            if self._leaving:
                return
            done = threading.Event()
            self._inbox.put(Revoked([number for _, number in partitions], done))
            if not done.wait(_REVOKE_TIMEOUT_S):
                log.warning("partitions %s are given up without an end", partitions)

        reader_thread.call(lambda reader: reader.subscribe([REQUESTS.name], assigned, revoked))
        reader_thread.start()

    def _close(self) -> None:
        self._leaving = True
        self._committer.close()
        self._requests.close()
        for reader in (self._sessions, self._fleet_reader):
            reader.close()
        self._producer.close()
        self._letters.close()
        self._telemetry.close()
        if self._export is not None:
            self._export.close()
