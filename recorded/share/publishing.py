"""Publishing a run's groups as text: those that a step trained, with a pass among them.

The text is a session's conversation up to its last completed turn. What the run's key published
before is not published again, even under another threshold for a pass.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from seamlessflow.consumers.trajectories.sessions.assemble import assembled
from seamlessflow.consumers.trajectories.sessions.partition import LoggedPartition
from seamlessflow.consumers.trajectories.sessions.session import Session, TurnState
from seamlessflow.infra.blobs import largest_trajectory
from seamlessflow.infra.clock import Stopping, never, now_ms
from seamlessflow.infra.kafka.producer import Producer
from seamlessflow.infra.kafka.topics.creation import check_prefix, create_topics
from seamlessflow.infra.kafka.unreadable import Skipped, Unreadable
from seamlessflow.infra.kafka.whole_topic import read_partitions, read_topic
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.recorded.select.reading import ended_sessions, partition_bounds
from seamlessflow.recorded.select.refold import Refold
from seamlessflow.recorded.select.selection import SessionSelection
from seamlessflow.recorded.share.content import (
    ContentMalformed,
    SharedContent,
    SharedSession,
    read_content,
)
from seamlessflow.recorded.share.keys import SigningKey, is_signed
from seamlessflow.schemas.json_text import read_json
from seamlessflow.schemas.records import GroupDropped, Record, SharedGroup, StepCommitted
from seamlessflow.schemas.topics import CONTROL, SESSIONS, SHARED
from seamlessflow.trainer.data.credit.returns import RewardWeights, session_return

_FLUSH_S = 60.0
_TRAIN = "train"
_RUN = ("cluster", "run")
"""Provenance that tells a run apart from all others."""


@dataclass(frozen=True, slots=True)
class PublishingJob:
    """The prefix to write under, and what is published from the run."""

    target: str
    key: SigningKey
    task: Callable[[str], bytes | None]
    """Returns the run's task with an id, as JSON, or None."""
    weights: RewardWeights
    passes: float = 1.0
    """Least return with which a session counts as a pass."""
    provenance: Mapping[str, str] = field(default_factory=dict)
    selection: SessionSelection = field(default_factory=SessionSelection)


@dataclass(slots=True)
class PublishingOutcome:
    """Group counts."""

    published: int = 0
    sessions: int = 0
    already_published: int = 0
    without_pass: int = 0
    not_taken: int = 0
    """Groups with more text or answers than a taker reads."""


@dataclass(slots=True)
class _Texts:
    """A group's ended sessions, by id."""

    task_id: str = ""
    policy: str = ""
    sessions: dict[str, SharedSession] = field(default_factory=dict)


class Publishing:
    """A run's topics, read as far as they go at each `update`."""

    def __init__(
        self, kafka: KafkaSettings, job: PublishingJob, stopping: Stopping = never
    ) -> None:
        """Create the shared topic if it is missing. Raises `SettingsRejected`, `KafkaRefused`."""
        check_prefix("--to", job.target)
        self.outcome = PublishingOutcome()
        self.skipped = Skipped()
        self._kafka = kafka
        self._job = job
        self._stopping = stopping
        self._target = kafka.model_copy(update={"topic_prefix": job.target})
        create_topics(self._target, [SHARED], stopping=stopping)
        self._trained: dict[str, Collection[str]] = {}
        """Sessions of each trained group that is not published yet."""
        self._over: set[str] = set()
        """Groups that were published or looked at, or that no step trains."""
        self._texts: dict[str, _Texts] = {}
        self._folds: dict[int, Refold] = {}
        self._read: dict[tuple[str, int], int] = {}
        """Next offset for each partition that is read."""
        self._published = set(self._earlier())

    def update(self) -> None:
        """Publish what was trained since the last call. Raises what `read_partitions` raises."""
        # Sessions end before a step trains them, so all these groups' sessions are there then.
        self._read_control()
        producer = Producer(self._target, "share-publish", linger_ms=5)
        try:
            for session in self._ended():
                self._keep(session)
            for group, sessions in self._trained.items():
                self._publish(producer, group, sessions)
            self._trained.clear()
            producer.flush(_FLUSH_S)
        finally:
            producer.close()

    def _earlier(self) -> Iterable[str]:
        """Yield this run's groups that its key published before."""
        public = self._job.key.public
        for item in read_topic(self._target, SHARED, self.skipped, stopping=self._stopping):
            record = item.record
            if not isinstance(record, SharedGroup) or record.signer != public:
                continue
            if is_signed(record.content, record.signature, public):
                try:
                    provenance = read_content(record.content).provenance
                except ContentMalformed:
                    continue
                ours = self._job.provenance
                if all(provenance.get(name) == ours.get(name) for name in _RUN):
                    yield provenance.get("group", "")

    def _read_control(self) -> None:
        place = (CONTROL.name, 0)
        starts = {place: self._read.get(place, 0)}
        for item in read_partitions(self._kafka, [place], starts=starts, stopping=self._stopping):
            self._read[place] = item.offset + 1
            if isinstance(item.record, Unreadable):
                self.skipped.apply(item.topic, item.record)
            self._apply(item.record)

    def _apply(self, record: Record) -> None:
        if isinstance(record, StepCommitted):
            for group in record.groups:
                # Stored groups come from others, or were published when they were new.
                if not group.pool and not group.reused and group.group_id not in self._over:
                    self._trained[group.group_id] = group.sessions
        elif isinstance(record, GroupDropped):
            self._over.add(record.group_id)
            self._texts.pop(record.group_id, None)

    def _ended(self) -> Iterable[Session]:
        bounds = partition_bounds(self._kafka, self._job.selection, self._stopping)
        for number, (first, end) in bounds.items():
            fold = self._folds.get(number)
            if fold is None:
                fold = Refold(LoggedPartition(number), self._job.selection)
                self._folds[number] = fold
            start = max(first, self._read.get((SESSIONS.name, number), 0))
            self._read[SESSIONS.name, number] = end
            yield from ended_sessions(
                self._kafka, fold, (start, end), self.skipped, lambda _: None, self._stopping
            )

    def _keep(self, session: Session) -> None:
        """Keep a session's text until its group is trained."""
        made, _ = assembled(session, 0, largest_trajectory(self._kafka))
        group = made.group_id or made.session_id
        reward = session_return(made, self._job.weights)
        completed = [turn for turn in session.turns.values() if turn.state is TurnState.COMPLETED]
        outside = (
            made.purpose != _TRAIN or group in self._over or not self._job.selection.chooses(made)
        )
        if outside or reward is None or not completed:
            return
        tools: Any = read_json(completed[-1].started.tools) if completed[-1].started.tools else ()
        messages = tuple(map(read_json, session.history(completed[-1])))
        texts = self._texts.setdefault(group, _Texts(made.task_id, made.policy))
        texts.sessions[made.session_id] = SharedSession(messages, reward, tuple(tools))

    def _publish(self, producer: Producer, group: str, trained: Collection[str]) -> None:
        self._over.add(group)
        texts = self._texts.pop(group, _Texts())
        sessions = [session for name, session in texts.sessions.items() if name in trained]
        if not sessions:
            return  # not chosen, or removed by retention
        if group in self._published:
            self.outcome.already_published += 1
            return
        if max(session.reward for session in sessions) < self._job.passes:
            self.outcome.without_pass += 1
            return
        provenance = {**self._job.provenance, "policy": texts.policy, "group": group}
        payload = self._job.task(texts.task_id)
        task = {"id": texts.task_id} if payload is None else read_json(payload)
        content = SharedContent(task, sessions, provenance).encode()
        try:
            read_content(content)
        except ContentMalformed:
            self.outcome.not_taken += 1
            return
        key = self._job.key
        record = SharedGroup(
            content=content, signer=key.public, signature=key.sign(content), at_ms=now_ms()
        )
        producer.send(SHARED.name, record, key=group)
        self.outcome.published += 1
        self.outcome.sessions += len(sessions)
