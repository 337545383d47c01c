"""Taking shared groups from a topic, as trajectories for a pool of `trainer.replay`.

Everything published is read from the beginning. A group that the pool has is not taken again. Its
trajectories name the place that it was taken from, so a copy at another place is recognized. A
group that is left out goes once to the dead letters under the pool's prefix, with its reason.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from seamlessflow.infra.clock import Stopping, never
from seamlessflow.infra.kafka.client import Received
from seamlessflow.infra.kafka.dead_letters import DeadLetters
from seamlessflow.infra.kafka.producer import Producer
from seamlessflow.infra.kafka.reader import Reader, ReadingRules
from seamlessflow.infra.kafka.start.cluster import find_cluster
from seamlessflow.infra.kafka.topics.creation import (
    check_prefix,
    create_dead_letters,
    create_topics,
)
from seamlessflow.infra.kafka.unreadable import Letter, Raw, Skipped, Unreadable
from seamlessflow.infra.kafka.whole_topic import read_partitions, read_topic
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.recorded.importing.importing import check_target
from seamlessflow.recorded.share.examining import (
    PLACE,
    LeftOut,
    Reason,
    TakingRules,
    signed_content,
    trajectories_of,
)
from seamlessflow.schemas.records import Trajectory
from seamlessflow.schemas.topics import SHARED, TRAJECTORIES

_FLUSH_EVERY = 200
"""Records between two waits for Kafka."""
_FLUSH_S = 60.0
_POLL_S = 0.2
_RAW = ReadingRules(decode=Raw)


@dataclass(frozen=True, slots=True)
class TakingJob:
    """Prefixes to read from and to write under, and the rules for taking."""

    source: str
    target: str
    rules: TakingRules
    follow: bool = False
    """True: wait for what is published later, until the command is asked to end."""


@dataclass(slots=True)
class TakingOutcome:
    """Group counts; `sessions` and `tokens` count those that were written now."""

    groups: int = 0
    sessions: int = 0
    tokens: int = 0
    already_taken: int = 0
    passed_over: int = 0
    """Groups signed with the run's own key."""
    left_out: Counter[Reason] = field(default_factory=Counter)


def take(
    kafka: KafkaSettings, job: TakingJob, outcome: TakingOutcome, stopping: Stopping = never
) -> None:
    """Write trajectories for the groups that are not there yet, and count them in `outcome`.

    Raises `SettingsRejected` for a prefix with sessions, `TopicMissing` without a shared topic, and
    what readers and producers raise.
    """
    check_prefix("--from", job.source)
    check_target(kafka, job.target)
    source = kafka.model_copy(update={"topic_prefix": job.source})
    target = kafka.model_copy(update={"topic_prefix": job.target})
    numbers = find_cluster(source, [SHARED], stopping).numbers(SHARED)
    create_topics(target, [TRAJECTORIES], stopping=stopping)
    create_dead_letters(target, SHARED, len(numbers))
    producer = Producer(target, "share-take", linger_ms=5)
    try:
        taking = _Taking(job, outcome, producer, DeadLetters(target, producer, stopping))
        taking.remember(target, stopping)
        for item in _arriving(source, numbers, job.follow, stopping):
            if item is None:
                producer.flush(_FLUSH_S)
            else:
                taking.apply(item)
        producer.flush(_FLUSH_S)
    finally:
        producer.close()


@dataclass(slots=True)
class _TakenGroup:
    """A group that the pool has: where it stood, and how many of its sessions are missing."""

    place: str
    missing: int


class _Taking:
    """The groups that the pool has, and the next one."""

    def __init__(
        self, job: TakingJob, outcome: TakingOutcome, producer: Producer, letters: DeadLetters
    ) -> None:
        self.outcome = outcome
        self._job = job
        self._producer = producer
        self._letters = letters
        self._groups: dict[str, _TakenGroup] = {}
        """Groups by their contents' names."""
        self._sessions: set[str] = set()
        self._seen = 0

    def remember(self, target: KafkaSettings, stopping: Stopping) -> None:
        """Note which groups the pool has. Raises what `read_topic` raises."""
        for item in read_topic(target, TRAJECTORIES, Skipped(), stopping=stopping):
            record = item.record
            if isinstance(record, Trajectory) and PLACE in record.metadata:
                self._note(record)

    def apply(self, item: Received) -> None:
        """Take a record's group, or bury it with its reason."""
        record = item.record
        # If a header's name is not UTF-8, the client gives no bytes.
        raw = record if isinstance(record, Raw) else Raw(b"")
        place = f"{self._job.source}{SHARED.name}[{item.partition}]@{item.offset}"
        try:
            if isinstance(record, Unreadable):
                raise LeftOut(Reason.MALFORMED, record.error)
            self._take(raw.value, place)
        except LeftOut as error:
            self.outcome.left_out[error.reason] += 1
            letter = Letter(
                SHARED.name,
                item.partition,
                item.offset,
                raw.key,
                raw.value,
                str(error),
                item.headers,
            )
            self._letters.bury([letter])
        self._seen += 1
        if self._seen % _FLUSH_EVERY == 0:
            self._producer.flush(_FLUSH_S)

    def _take(self, value: bytes, place: str) -> None:
        rules = self._job.rules
        signed = signed_content(value, rules)
        if not signed.signer:
            self.outcome.passed_over += 1
            return
        group = self._groups.get(signed.name)
        if group is not None and group.place != place:
            raise LeftOut(Reason.REPEATED, f"it is that of {group.place}")
        if group is not None and not group.missing:
            self.outcome.already_taken += 1
            return
        made = trajectories_of(signed, place, rules)
        self.outcome.groups += 1
        for trajectory in made:
            if trajectory.session_id not in self._sessions:
                self._note(trajectory)
                self._producer.send(TRAJECTORIES.name, trajectory, key=trajectory.group_id)
                self.outcome.sessions += 1
                self.outcome.tokens += len(trajectory.loss_mask)

    def _note(self, trajectory: Trajectory) -> None:
        name = trajectory.metadata["file"]
        new = _TakenGroup(trajectory.metadata[PLACE], trajectory.group_size)
        group = self._groups.setdefault(name, new)
        if trajectory.session_id not in self._sessions:
            self._sessions.add(trajectory.session_id)
            group.missing -= 1


def _arriving(
    source: KafkaSettings, numbers: Sequence[int], follow: bool, stopping: Stopping
) -> Iterator[Received | None]:
    """Yield what is published. With `follow`, also yield what comes later, and None in between."""
    places = [(SHARED.name, number) for number in numbers]
    reader = Reader(source, "share-take", stopping=stopping, rules=_RAW)
    try:
        ends = reader.ends(places)
        yield from read_partitions(source, places, ends=ends, stopping=stopping, rules=_RAW)
        reader.assign(ends)
        while follow and not stopping():
            yield from reader.poll(_POLL_S)
            yield None
    finally:
        reader.close()
