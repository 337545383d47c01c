"""Copy of a topic in a schema registry's wire format.

Each transaction holds a batch of copied records and the offsets behind them on the source topic. So
a copy that was cut off goes on where it ended, and no record is copied twice.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field

from seamlessflow.infra.errors import NewerRelease, PartitionsDiffer, SeamlessFlowError
from seamlessflow.infra.kafka.client import LogPartition, Received
from seamlessflow.infra.kafka.producer import TransactionalProducer
from seamlessflow.infra.kafka.reader import Reader, ReadingRules
from seamlessflow.infra.kafka.start.cluster import find_cluster
from seamlessflow.infra.kafka.topics.creation import create_copy
from seamlessflow.infra.kafka.whole_topic import read_partitions
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.recorded.interchange.schema_registry import RawRecord, SchemaRegistry, subject_of
from seamlessflow.schemas.registry import Schema, schema_versions
from seamlessflow.schemas.topics import TOPICS

_ANSWER_S = 30.0
_BATCH_RECORDS = 1_000
_BATCH_BYTES = 8_000_000

CopyProgress = Callable[[int, int], None]
"""Function that gets how many offsets the copy has passed, and how many there are."""


class CopyRefused(SeamlessFlowError):
    """A copy that would not hold each record from its source once."""

    lasting = True

    def __init__(self, topic: str, target: str, reason: str) -> None:
        self.topic = topic
        self.target = target
        self.reason = reason
        super().__init__(f"{topic} is not copied to {target}: {reason}")


@dataclass(slots=True)
class Copied:
    """One call's counts: copied records, and those left out since no release writes them."""

    records: int = 0
    garbage: int = 0


def copy_topic(
    kafka: KafkaSettings, topic: str, target: str, registry: str, progress: CopyProgress
) -> Copied:
    """Copy the records that `topic` has now and that earlier calls did not copy.

    It creates the target if it is missing. Raises `CopyRefused`, `RegistryFailed`, `NewerRelease`,
    `PartitionsDiffer`, and what Kafka's clients raise.
    """
    _check_names(topic, target)
    numbers = find_cluster(kafka, [TOPICS[topic]], limit_s=_ANSWER_S).numbers(TOPICS[topic])
    places = [(topic, number) for number in numbers]
    count = create_copy(kafka, topic, target)
    if count != len(places):
        raise PartitionsDiffer({topic: len(places), target: count})
    name = f"copy-{topic}-{target}"
    with (
        SchemaRegistry(registry) as schemas,
        # First: it ends a transaction that an earlier copy left open.
        closing(TransactionalProducer(kafka, name, limit_s=_ANSWER_S)) as producer,
        closing(Reader(kafka, name)) as reader,
    ):
        copy = _Copy(kafka, target, producer, reader, schemas, progress)
        return copy.run(_starts(producer, reader, places, target))


def _check_names(topic: str, target: str) -> None:
    letters = {entry.dead_letters for entry in TOPICS.values()}
    if topic not in TOPICS:
        raise CopyRefused(topic, target, f"the topics are {', '.join(TOPICS)}")
    if target in TOPICS or target in letters:
        raise CopyRefused(topic, target, "processes read that topic; name one of your own")


def _starts(
    producer: TransactionalProducer, reader: Reader, places: list[LogPartition], target: str
) -> dict[LogPartition, int]:
    """Return the offset where each partition's copy begins. Raises `CopyRefused`."""
    committed = {place: at for place, (at, _) in reader.committed(places, _ANSWER_S).items()}
    if all(at < 0 for at in committed.values()):
        ends = reader.ends([(target, number) for _, number in places], _ANSWER_S)
        if any(ends.values()):
            reason = (
                "it has records, and the place where a copy ended is not known (Kafka keeps it for "
                "offsets.retention.minutes); name another topic, or delete this one"
            )
            raise CopyRefused(places[0][0], target, reason)
        committed = dict.fromkeys(places, 0)
        # From here on the target is known to be ours, also if the first batch is cut off.
        producer.commit(lambda: None, _offsets(committed), reader.group_metadata())
    starts = {place: max(at, 0) for place, at in committed.items()}
    ends = reader.ends(places, _ANSWER_S)
    if begun_anew := [place for place, at in starts.items() if at > ends[place]]:
        topic, number = begun_anew[0]
        reason = f"{topic}[{number}] ends before what was copied: it was made anew since"
        raise CopyRefused(topic, target, f"{reason}; name another topic, or delete this one")
    return starts


@dataclass
class _Copy:
    """One call: batches of records, a transaction for each."""

    _kafka: KafkaSettings
    _target: str
    _producer: TransactionalProducer
    _reader: Reader
    _registry: SchemaRegistry
    _progress: CopyProgress
    _schemas: Mapping[str, tuple[str, Schema]] = field(
        default_factory=lambda: {
            version: (name, schema)
            for name, versions in schema_versions().items()
            for version, schema in versions.items()
        }
    )
    _ids: dict[str, int] = field(default_factory=dict)

    def run(self, starts: Mapping[LogPartition, int]) -> Copied:
        """Copy everything from `starts` on."""
        copied = Copied()
        done = 0
        ends = self._reader.ends(starts, _ANSWER_S)
        total = sum(ends[place] - start for place, start in starts.items())
        for batch in self._batches(starts):
            values = [(item, self._framed(item)) for item in batch]
            whole = [(item, value) for item, value in values if value is not None]
            behind = {(item.topic, item.partition): item.offset + 1 for item in batch}

            def send(whole: list[tuple[Received, bytes]] = whole) -> None:
                for item, value in whole:
                    self._send(item, value)

            self._producer.commit(send, _offsets(behind), self._reader.group_metadata())
            copied.records += len(whole)
            copied.garbage += len(batch) - len(whole)
            done += len(batch)
            self._progress(done, total)
        return copied

    def _batches(self, starts: Mapping[LogPartition, int]) -> Iterator[list[Received]]:
        batch: list[Received] = []
        size = 0
        for item in read_partitions(
            self._kafka,
            list(starts),
            starts=starts,
            limit_s=_ANSWER_S,
            rules=ReadingRules(decode=RawRecord),
        ):
            batch.append(item)
            size += len(item.record.value) if isinstance(item.record, RawRecord) else 0
            if len(batch) == _BATCH_RECORDS or size > _BATCH_BYTES:
                yield batch
                batch = []
                size = 0
        if batch:
            yield batch

    def _framed(self, item: Received) -> bytes | None:
        """Return the record's new value, or None for garbage. Raises `NewerRelease`."""
        record = item.record
        if not isinstance(record, RawRecord) or (fingerprint := record.fingerprint) is None:
            return None
        if fingerprint not in self._ids:
            if fingerprint not in self._schemas:
                what = f"the unknown schema fingerprint {fingerprint}"
                raise NewerRelease(item.topic, item.partition, item.offset, what)
            name, schema = self._schemas[fingerprint]
            subject = subject_of(self._kafka.topic_prefix + self._target, name)
            self._ids[fingerprint] = self._registry.register(subject, schema)
        return record.framed(self._ids[fingerprint])

    def _send(self, item: Received, value: bytes) -> None:
        self._producer.send_bytes(
            self._target,
            value,
            item.key,
            item.partition,
            item.headers,
            timestamp_ms=item.timestamp_ms,
        )


def _offsets(places: Mapping[LogPartition, int]) -> dict[LogPartition, tuple[int, str]]:
    return {place: (offset, "") for place, offset in places.items()}
