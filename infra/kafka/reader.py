"""Reader of records from Kafka, for one thread: every call waits until a running poll returns."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from seamlessflow.infra.blobs import whole_records
from seamlessflow.infra.clock import CallsInTurn, Stopping, never, within
from seamlessflow.infra.errors import KafkaRefused, KafkaUnavailable, TopicMissing
from seamlessflow.infra.kafka import log
from seamlessflow.infra.kafka.bounds import LagLookup
from seamlessflow.infra.kafka.client import (
    BEGINNING,
    END,
    STRANDED,
    LogPartition,
    Received,
    client,
    consumer_options,
    watched,
)
from seamlessflow.infra.kafka.messages import WantedKeys, decoded
from seamlessflow.infra.kafka.outage import ASK_S, NO_LEADER_YET, REFUSALS, Outage
from seamlessflow.infra.kafka.start.group import lasting
from seamlessflow.infra.kafka.topics.existing import partition_counts
from seamlessflow.infra.kafka.transactions.hanging import WARN_EVERY_S, warn_of_hanging
from seamlessflow.infra.kafka.unreadable import Letter, Unreadable
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.schemas.codec import decode
from seamlessflow.schemas.records import Record

_log = log.logger(__name__)
TopicPlaces = list[TopicPartition]
_BATCH = 500
_WITHOUT_BROKERS = {
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._TIMED_OUT,
    KafkaError._TRANSPORT,
    KafkaError._WAIT_COORD,
}
"""Errors of a client that has lost all brokers; a Kafka outage causes the same ones."""
_TOPIC_PATIENCE_S = 4.0
"""Time for which an unknown topic may be one that was created a moment ago."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadingRules:
    """Rules by which records are taken from the log."""

    bury: Callable[[list[Letter]], None] | None = None
    """Takes garbage; None: it is only delivered."""
    folds: bool = False
    """True: a record that counts and cannot be decoded is an error."""
    decode: Callable[[bytes], Record] = decode
    wanted: WantedKeys | None = None
    """Returns False for the key of a record that is left out undecoded; None: all are wanted."""


_ALL = ReadingRules()


class Reader:
    """Consumer that reads assigned partitions, or those that a Kafka consumer group gives it.

    A record that cannot be decoded is delivered as `Unreadable`. `rules.bury` gets it if it is
    garbage. If it counts (a newer release's record, or one whose blob is missing), a reader that
    folds raises `NewerRelease` or `BlobUnavailable`.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        client_id: str,
        *,
        group: str | None = None,
        rules: ReadingRules = _ALL,
        stopping: Stopping = never,
        **options: Any,
    ) -> None:
        self._prefix = settings.topic_prefix
        self._settings = settings
        self._client_id = client_id
        self._group = settings.topic_prefix + (group or client_id)
        self._instance = str(options.get("group.instance.id", ""))
        self._rules = rules
        self._garbage = list[Letter]()
        self._ends_reached: dict[LogPartition, int] = {}
        self._next: dict[LogPartition, int] = {}
        """Offset of each assigned partition's next record, or where reading begins."""
        self._lag = LagLookup(settings)
        self.unreadable: Counter[str] = Counter()
        """Records that could not be decoded, counted by topic. Any thread."""
        self._decode = whole_records(settings, rules.decode)
        self._stopping = stopping
        self._subscribed = False
        self._commits = CallsInTurn()
        self._options = {**consumer_options(settings, client_id, self._group), **options}
        self.watch, self._consumer = watched(Consumer, self._options)

    def assign(self, offsets: Mapping[LogPartition, int]) -> None:
        """Read exactly these partitions from these offsets (`BEGINNING` or a number)."""
        self._ends_reached.clear()
        self._next = dict(offsets)
        self._consumer.assign(self._positions(offsets))

    def add(self, offsets: Mapping[LogPartition, int]) -> None:
        """Also read these partitions; those that it already reads continue at the new offsets."""
        self.remove(offsets)
        self._next |= offsets
        self._consumer.incremental_assign(self._positions(offsets))

    def remove(self, partitions: Iterable[LogPartition]) -> None:
        """Stop reading these partitions; ignore those that it does not read."""
        gone = {
            partition: self._next.pop(partition)
            for partition in partitions
            if partition in self._next
        }
        if gone:  # the client refuses partitions that it does not have, and all if it has none
            self._consumer.incremental_unassign(self._positions(gone))

    def pause(self, partitions: Iterable[LogPartition], on: bool) -> None:
        """Stop reading these assigned partitions for now; go on once called with False."""
        places = self._positions(dict.fromkeys(partitions, END))
        (self._consumer.pause if on else self._consumer.resume)(places)

    def subscribe(
        self,
        topics: Sequence[str],
        on_assigned: Callable[[list[LogPartition]], None] | None = None,
        on_revoked: Callable[[list[LogPartition]], None] | None = None,
    ) -> None:
        """Join the consumer group.

        The callbacks run inside `poll`; partitions are given up when `on_revoked` returns.
        """

        def assigned(_: Any, positions: list[TopicPartition]) -> None:
            self._next |= dict.fromkeys(self._partitions(positions), BEGINNING)
            if on_assigned:
                on_assigned(self._partitions(positions))

        def revoked(_: Any, positions: list[TopicPartition]) -> None:
            gone = self._partitions(positions)
            self._next = {place: at for place, at in self._next.items() if place not in gone}
            if on_revoked:
                on_revoked(gone)

        self._subscribed = True
        names = [self._prefix + topic for topic in topics]
        self._consumer.subscribe(names, on_assign=assigned, on_revoke=revoked, on_lost=revoked)

    def poll(self, timeout_s: float) -> list[Received]:
        """Return the records that have arrived, or an empty list after `timeout_s`.

        Raises `KafkaUnavailable` if the client cannot go on, `KafkaRefused`, what `group.lasting`
        returns, `NewerRelease` and `BlobUnavailable`.
        """
        if self.watch.stranded or self._commits.unfinished:
            self._replace_client()
        # `consume` would wait until the batch is full or the time is over.
        first = self._consumer.poll(timeout_s)
        if first is None:
            return []
        received = []
        for message in (first, *self._consumer.consume(_BATCH, 0)):
            error = message.error()
            if error is not None:
                self._fault(error, message)
                continue
            place = str(message.topic()).removeprefix(self._prefix), message.partition() or 0
            self._next[place] = (message.offset() or 0) + 1
            if (item := decoded(message, place, self._decode, self._rules.wanted)) is not None:
                received.append(item)
                if isinstance(item.record, Unreadable):
                    self._take(item, item.record, message)
        garbage = self._garbage
        self._garbage = []
        if garbage and self._rules.bury is not None:
            self._rules.bury(garbage)
        return received

    def committed(
        self, partitions: Sequence[LogPartition], limit_s: float | None = None
    ) -> dict[LogPartition, tuple[int, str]]:
        """Return the consumer group's committed offsets (-1001 if there is none) and metadata.

        If a transaction hangs, logs every 30 s which one the offsets wait for. Raises what
        `Outage.endure` raises.
        """
        if not partitions:
            return {}
        asked = [TopicPartition(self._prefix + topic, number) for topic, number in partitions]
        outage = Outage(self._settings, self._stopping, limit_s)
        warn_s = WARN_EVERY_S
        while True:
            try:
                answer = self._answer(lambda consumer: consumer.committed(asked, ASK_S))
                break
            except KafkaException as error:
                outage.endure(error.args[0])
            if outage.waited_s > warn_s:
                warn_s = outage.waited_s + WARN_EVERY_S
                warn_of_hanging(self._settings, self._stopping)
        places = zip(self._partitions(answer), answer, strict=True)
        committed = {partition: (place.offset, place.metadata or "") for partition, place in places}
        for partition in committed.keys() & self._next.keys():  # a member of the group begins there
            self._next[partition] = max(self._next[partition], committed[partition][0])
        return committed

    def commit(
        self, offsets: Mapping[LogPartition, tuple[int, str]], limit_s: float | None = None
    ) -> None:
        """Commit the next offsets to read, with metadata for the next owner, and wait for it.

        Give no `limit_s` in a `subscribe` callback. A group member that gets no answer within it
        cannot go on. Raises `KafkaUnavailable`, also for a partition that another member owns.
        """
        places = [
            TopicPartition(self._prefix + topic, number, offset, metadata)
            for (topic, number), (offset, metadata) in offsets.items()
        ]
        if not places:
            return
        commit = partial(self._consumer.commit, offsets=places, asynchronous=False)
        try:
            self._commits.within(limit_s, commit)
        except (KafkaException, TimeoutError) as error:
            reason = error.args[0].str() if isinstance(error, KafkaException) else str(error)
            raise KafkaUnavailable(self._settings.bootstrap_servers, 0, reason) from error

    def ends(
        self, partitions: Iterable[LogPartition], limit_s: float | None = None
    ) -> dict[LogPartition, int]:
        """Return the offset behind each partition's last record.

        Each request waits for a running fetch, so ask for all at once. Raises what `Outage.endure`
        raises, and `TopicMissing`.
        """
        asked = [TopicPartition(self._prefix + t, number, END) for t, number in partitions]
        outage = Outage(self._settings, self._stopping, limit_s)
        patience_s = min(_TOPIC_PATIENCE_S, outage.limit_s)
        while True:
            answer, reason = self._latest(asked, min(ASK_S, outage.limit_s))
            if reason is None:
                return {(p.topic.removeprefix(self._prefix), p.partition): p.offset for p in answer}
            if reason.code() in NO_LEADER_YET and outage.waited_s > patience_s:
                self._check_there(asked, ASK_S)
            outage.endure(reason)

    def position(self, partition: LogPartition) -> int:
        """Return the offset at which `poll` goes on in an assigned partition.

        Some offsets have no record: a transaction ended there, or compaction removed it. If `poll`
        passed over such offsets at the partition's end, the returned offset stands behind them.
        """
        place = TopicPartition(self._prefix + partition[0], partition[1])
        position = int(self._consumer.position([place])[0].offset)
        return max(position, self._ends_reached.get(partition, position))

    def lags(self) -> Mapping[LogPartition, int]:
        """Return how many records each partition has that are not read yet. Any thread.

        A partition is left out if its leader does not answer in time; all are, once closed.
        """
        return self._lag.behind(self._next.copy())

    def group_metadata(self) -> Any:
        """Return what a transaction needs to commit offsets for this reader's consumer group."""
        return self._consumer.consumer_group_metadata()

    def close(self) -> None:
        """Leave the consumer group."""
        self._lag.close()
        if not self._commits.unfinished:  # it would wait for that commit
            self._consumer.close()

    def _replace_client(self) -> None:
        """Go on with a new client after the last delivered record; a group member cannot."""
        if self._subscribed or END in self._next.values():
            raise KafkaUnavailable(self._settings.bootstrap_servers, 0, STRANDED)
        _log.warning("%s; another one takes its place", STRANDED)
        with suppress(TimeoutError):
            within(ASK_S, self._consumer.close)
        self.watch, self._consumer = watched(Consumer, self._options)
        self.assign(self._next)

    def _latest(
        self, asked: list[TopicPartition], timeout_s: float
    ) -> tuple[list[TopicPartition], KafkaError | None]:
        """Return the partitions' ends, and the error of one whose end is unknown, or None."""
        if not asked:
            return [], None
        try:
            answer = self._answer(lambda consumer: consumer.offsets_for_times(asked, timeout_s))
        except KafkaException as error:
            return [], error.args[0]
        return answer, next((place.error for place in answer if place.error is not None), None)

    def _answer(self, ask: Callable[[Consumer], TopicPlaces]) -> TopicPlaces:
        """Return the client's answer, or another client's if this one may have lost all brokers.

        Only a poll notices that loss (`BrokerWatch`), and no poll comes before the answer.
        """
        try:
            return ask(self._consumer)
        except KafkaException as error:
            if error.args[0].code() not in _WITHOUT_BROKERS:
                raise
        another = client(Consumer, consumer_options(self._settings, self._client_id, self._group))
        try:
            return ask(another)
        finally:
            another.close()

    def _check_there(self, asked: list[TopicPartition], timeout_s: float) -> None:
        """Raise `TopicMissing` if the cluster answers and a topic is not there.

        Another client asks, because this may run in a `subscribe` callback. There, this consumer's
        `list_topics` would end the process with the next event of the same poll
        (confluent-kafka 2.16: `CallState_get: Assertion cs != NULL failed`).
        """
        try:
            topics = partition_counts(self._settings, timeout_s)
        except (KafkaUnavailable, KafkaRefused):
            return
        for place in asked:
            if place.topic not in topics:
                raise TopicMissing(place.topic, self._settings.bootstrap_servers)

    def _fault(self, error: KafkaError, message: Message) -> None:
        if error.code() == KafkaError._PARTITION_EOF:
            topic = str(message.topic()).removeprefix(self._prefix)
            self._ends_reached[topic, int(message.partition() or 0)] = int(message.offset() or 0)
        elif error.code() in REFUSALS:
            raise KafkaRefused(self._settings.bootstrap_servers, error.str())
        elif (refusal := lasting(error, self._group, self._instance)) is not None:
            raise refusal
        elif error.fatal() or error.code() == KafkaError._FATAL:
            raise KafkaUnavailable(self._settings.bootstrap_servers, 0, error.str())
        else:  # the name in the text, so that each kind is logged by itself
            _log.warning(f"Kafka reports {error.name()}: %s", error.str())

    def _take(self, received: Received, unreadable: Unreadable, message: Message) -> None:
        self.unreadable[received.topic] += 1
        if unreadable.missed is not None and self._rules.folds:
            raise unreadable.missed
        _log.warning(
            "skipped: %s[%d]@%d: %s",
            received.topic,
            received.partition,
            received.offset,
            unreadable.error,
        )
        if unreadable.missed is None:
            letter = Letter(
                received.topic,
                received.partition,
                received.offset,
                message.key(),
                message.value() or b"",
                unreadable.error,
                received.headers,
            )
            self._garbage.append(letter)

    def _positions(self, offsets: Mapping[LogPartition, int]) -> list[TopicPartition]:
        return [TopicPartition(self._prefix + topic, n, at) for (topic, n), at in offsets.items()]

    def _partitions(self, places: Iterable[TopicPartition]) -> list[LogPartition]:
        return [(place.topic.removeprefix(self._prefix), place.partition) for place in places]
