"""The manager's reader threads: `fleet` with `control`, `requests`, `sessions`.

For each takeover another thread reads `ended_sessions`. `requests` is read as a member of the Kafka
consumer group; `Ownership` then adds the same partitions of `sessions`. The sessions that former
owners ended are read beside the takeover, and running sessions do not wait for that. Two kinds of
commands need them: those without an open session, and calls by name that may repeat earlier calls.
"""

import logging
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from seamlessflow.consumers.trajectories.bus.inbox import ManagerInbox
from seamlessflow.consumers.trajectories.bus.outbox import Echoes
from seamlessflow.consumers.trajectories.bus.request_ends import BoundsReader, RequestBounds
from seamlessflow.consumers.trajectories.sessions.ended import HASH_BYTES, EndedRead
from seamlessflow.consumers.trajectories.sessions.partition import PartitionProgress
from seamlessflow.infra.clock import Stopping
from seamlessflow.infra.errors import KafkaUnavailable
from seamlessflow.infra.kafka.client import BEGINNING
from seamlessflow.infra.kafka.dead_letters import DeadLetters
from seamlessflow.infra.kafka.outage import WITHOUT_LIMIT, Outage
from seamlessflow.infra.kafka.producer import Producer
from seamlessflow.infra.kafka.reader import Reader, ReadingRules
from seamlessflow.infra.kafka.reader_thread import Deliver, ReaderThread
from seamlessflow.infra.kafka.start.group import membership
from seamlessflow.infra.kafka.unreadable import Letter
from seamlessflow.infra.kafka.whole_topic import read_partitions
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.infra.telemetry.metrics import Metrics
from seamlessflow.schemas.codec import UndecodableRecord, decode
from seamlessflow.schemas.records import EndedSession, Record
from seamlessflow.schemas.topics import (
    CONTROL,
    ENDED_SESSIONS,
    FLEET,
    REQUESTS,
    SESSIONS,
    GatewayQuestion,
    SessionCommand,
)

_log = logging.getLogger(__name__)
_CLOSE_TIMEOUT_S = 5
_AGAIN_S = 1.0
Found = Mapping[int, EndedRead]
"""Ended sessions by partition. A partition without ended sessions may be missing."""
Bury = Callable[[Sequence[Letter]], None]


def decode_command(value: bytes) -> Record:
    """Return the command that `value` encodes. Raises `UndecodableRecord`."""
    record = decode(value)
    if not isinstance(record, SessionCommand | GatewayQuestion):
        raise UndecodableRecord(f"{type(record).__name__} is not a command")
    return record


def decode_ended(value: bytes) -> Record:
    """Return the ended session that `value` encodes. Raises `UndecodableRecord`."""
    record = decode(value)
    if not isinstance(record, EndedSession):
        raise UndecodableRecord(f"{type(record).__name__} is not an ended session")
    for name, hashes in (("calls", record.calls), ("named_calls", record.named_calls)):
        if len(hashes) % HASH_BYTES:
            size = len(hashes)
            raise UndecodableRecord(f"{name} have {size} bytes, no multiple of {HASH_BYTES}")
    return record


@dataclass(frozen=True, slots=True)
class Member:
    """A manager as a member of the managers' Kafka consumer group."""

    manager: str
    group: str
    """The group's name, without the topic prefix."""
    instance: str | None
    """The static member's name, which outlives a restart; None for another kind of member."""


class Readers:
    """Puts all records and reader errors into the inbox.

    Callbacks run in the reader threads, where they should only put work into the inbox.
    """

    def __init__(
        self,
        kafka: KafkaSettings,
        member: Member,
        inbox: ManagerInbox,
        echoes: Echoes,
        metrics: Metrics,
        stopping: Stopping,
    ) -> None:
        group = member.group
        self._letters = Producer(kafka, f"{member.manager}-dead-letters")
        self._dead = DeadLetters(kafka, self._letters, stopping)
        bury = self._dead.bury

        def thread(
            name: str, deliver: Deliver, rules: ReadingRules, **options: Any
        ) -> ReaderThread:
            client_id = f"{member.manager}-{name}"
            reader = Reader(kafka, client_id, rules=rules, stopping=stopping, **options)
            metrics.watch(reader)
            return ReaderThread(f"{name} reader", reader, deliver, inbox.fail)

        # The main thread waits until the fleet is read before it empties the inbox: no limit.
        self._fleet = thread("fleet", inbox.post, ReadingRules(folds=True))
        self.requests = thread(
            "requests",
            inbox.put,
            ReadingRules(bury=bury, folds=True, decode=decode_command),
            group=group,
            **membership(kafka, group, REQUESTS, member.instance, stopping),
        )
        self._sessions = thread(
            "sessions", inbox.put, ReadingRules(bury=bury, folds=True, decode=echoes.decode)
        )
        self._ended = EndedReader(kafka, bury, inbox.fail)
        self._kafka = kafka
        self._stopping = stopping
        self._group = kafka.topic_prefix + group
        self._echoes = echoes
        self._bounds = BoundsReader(kafka, inbox.fail)

    def read_fleet_to_end(self) -> None:
        """Read `fleet` to its end, before anything is decided: it holds policies and workers.

        Blocks until Kafka answers, then for at most `kafka.wait_s`. Raises `KafkaUnavailable`, also
        once `stopping`, and the reading thread's error.
        """
        self._fleet.start()
        topics = [(FLEET.name, 0), (CONTROL.name, 0)]
        ends = self._fleet.ask(lambda reader: reader.ends(topics), WITHOUT_LIMIT)
        # `control` from now on: heartbeats on `fleet` show who serves at this moment.
        starts = {(FLEET.name, 0): BEGINNING, (CONTROL.name, 0): ends[CONTROL.name, 0]}
        self._fleet.call(lambda reader: reader.assign(starts))
        outage = Outage(self._kafka, self._stopping)
        self._fleet.await_position((FLEET.name, 0), ends[FLEET.name, 0], outage)

    def join_group(
        self,
        assigned: Callable[[dict[int, tuple[int, PartitionProgress]]], None],
        revoked: Callable[[list[int]], None],
    ) -> None:
        """Join the consumer group and start reading. Callbacks run in the thread of `requests`.

        `assigned` gets next offset and progress by partition. `revoked` gets partitions that Kafka
        gives away once the callback returns.
        """

        def with_progress(partitions: list[tuple[str, int]]) -> None:
            self._dead.look_anew(
                (topic.name, number)
                for _, number in partitions
                for topic in (REQUESTS, SESSIONS, ENDED_SESSIONS)
            )
            committed = self.requests.reader.committed(partitions, WITHOUT_LIMIT)
            self._warn_of_lost(
                number for (_, number), (offset, _) in committed.items() if offset < 0
            )
            assigned(
                {
                    number: (max(offset, 0), PartitionProgress.decode(metadata))
                    for (_, number), (offset, metadata) in committed.items()
                }
            )

        def numbers(partitions: list[tuple[str, int]]) -> None:
            revoked([number for _, number in partitions])

        self.requests.call(lambda reader: reader.subscribe([REQUESTS.name], with_progress, numbers))
        self.requests.start()
        self._sessions.start()

    def read_ended(self, numbers: Sequence[int], deliver: Callable[[Found], None]) -> None:
        """Call `deliver` with the sessions that these partitions' former owners ended."""
        self._ended.read(numbers, deliver)

    def add_sessions(self, offsets: Mapping[int, int], added: Callable[[], None]) -> None:
        """Also read these `sessions` partitions. `added` is called before their first record."""
        starts = {(SESSIONS.name, number): offset for number, offset in offsets.items()}

        def add(reader: Reader) -> None:
            reader.add(starts)
            added()

        self._sessions.call(add)

    def remove_sessions(self, numbers: list[int]) -> None:
        """Stop reading these `sessions` partitions. Records already read may still arrive."""
        self._echoes.forget()
        gone = [(SESSIONS.name, number) for number in numbers]
        self._sessions.call(lambda reader: reader.remove(gone))

    def pause(self, topic: str, numbers: Collection[int], on: bool) -> None:
        """Stop reading these `requests` or `sessions` partitions until a call with `on` False.

        Records already read may still arrive.
        """
        places = [(topic, number) for number in numbers]
        thread = self.requests if topic == REQUESTS.name else self._sessions
        thread.call(lambda reader: reader.pause(places, on))

    def ask_for_bounds(
        self, numbers: Sequence[int], answer: Callable[[RequestBounds], None]
    ) -> None:
        """Call `answer` with the bounds of these `requests` partitions, as far as known."""
        self._bounds.ask(numbers, answer)

    def close(self) -> None:
        """Leave the consumer group and end the threads."""
        for reader in (self.requests, self._sessions, self._fleet, self._ended, self._bounds):
            reader.close()
        self._letters.close()

    def _warn_of_lost(self, without_offset: Iterable[int]) -> None:
        """Log which partitions hold events although the consumer group has no offset for them."""
        places = [(SESSIONS.name, number) for number in without_offset]
        ends = self.requests.reader.ends(places, WITHOUT_LIMIT) if places else {}
        held = {number: end for (_, number), end in ends.items() if end > 0}
        if held:
            _log.warning(
                "Kafka consumer group %s has no offset of %s (deleted, or older than the cluster's "
                "offsets.retention.minutes): all events of these partitions of %s are folded "
                "again (partition: end): %s; trajectories of sessions on %s are not repeated",
                self._group,
                REQUESTS.name,
                SESSIONS.name,
                held,
                ENDED_SESSIONS.name,
            )


class EndedReader:
    """Reads partitions of `ended_sessions` to their end, each time in a separate thread."""

    def __init__(
        self, kafka: KafkaSettings, bury: Bury, failed: Callable[[BaseException], None]
    ) -> None:
        self._kafka = kafka
        self._bury = bury
        self._failed = failed
        self._closing = threading.Event()
        self._threads: list[threading.Thread] = []

    def read(self, numbers: Sequence[int], deliver: Callable[[Found], None]) -> None:
        """Call `deliver` with everything that these partitions hold now. Returns at once."""
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        thread = threading.Thread(
            target=self._run, args=(numbers, deliver), name="ended sessions reader", daemon=True
        )
        self._threads.append(thread)
        thread.start()

    def close(self) -> None:
        """End the threads; blocks for 5 s at most."""
        self._closing.set()
        deadline = time.monotonic() + _CLOSE_TIMEOUT_S
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def _run(self, numbers: Sequence[int], deliver: Callable[[Found], None]) -> None:
        while not self._closing.is_set():
            try:
                ended = self._read(numbers)
            except KafkaUnavailable as error:
                if not self._closing.wait(_AGAIN_S):
                    _log.warning("cannot read %s yet, trying again: %s", ENDED_SESSIONS.name, error)
            except BaseException as error:
                # The owner ends the process with it; otherwise commands would wait for ever.
                return self._failed(error)
            else:
                return deliver(ended)

    def _read(self, numbers: Sequence[int]) -> Found:
        ended: defaultdict[int, EndedRead] = defaultdict(EndedRead)
        places = [(ENDED_SESSIONS.name, number) for number in numbers]
        for item in read_partitions(
            self._kafka,
            places,
            stopping=self._closing.is_set,
            rules=ReadingRules(bury=self._bury, folds=True, decode=decode_ended),
        ):
            if isinstance(item.record, EndedSession):
                ended[item.partition].apply(item.record)
        return ended
