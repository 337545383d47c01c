"""Pools' topics: fills the pools from them, and reads the stored sessions that a step trains.

Every pool but `own` is read once from its beginning, and then followed. A chosen session is
read again from its place, so no tokens are kept. Called by the trainer's assembly.
"""

import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from seamlessflow.infra.clock import Stopping, never
from seamlessflow.infra.errors import SeamlessFlowError, TopicMissing
from seamlessflow.infra.kafka.client import Received
from seamlessflow.infra.kafka.outage import WITHOUT_LIMIT
from seamlessflow.infra.kafka.reader import Reader
from seamlessflow.infra.kafka.start.cluster import find_cluster
from seamlessflow.infra.kafka.whole_topic import read_partitions
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.schemas.records import Trajectory
from seamlessflow.schemas.topics import TRAJECTORIES
from seamlessflow.trainer.data.sessions import FailedSession, ValidSession
from seamlessflow.trainer.mixing.mixed_steps import Mixing, mixing_of
from seamlessflow.trainer.mixing.pools import Pool, StoredSession
from seamlessflow.trainer.mixing.stored import (
    StoredRules,
    left_out,
    stored_group,
    stored_session,
)
from seamlessflow.trainer.recording import source_kafka
from seamlessflow.trainer.settings import TrainerSettings
from seamlessflow.trainer.stored import OWN

_log = logging.getLogger(__name__)
_SHOWN = 10_000
"""Records that are read from a pool between two progress lines."""
_MISSING = (
    "is not there: `replay merge --to`, `import --to` and `share take --to` write such topics"
)
_NEAR = 32
"""Most records between two places that are still read in one run."""
OfPools = Sequence[tuple[str, StoredSession]]
"""Stored sessions with their pools' names."""


class PoolUnusable(SeamlessFlowError):
    """A pool that does not exist, or has no session that can be trained with these settings."""

    lasting = True

    def __init__(self, pool: str, topic: str, reason: str) -> None:
        self.pool = pool
        self.topic = topic
        self.reason = reason
        super().__init__(f"trainer.replay.pools.{pool}: {topic} {reason}")


@dataclass(eq=False)
class PoolTopics:
    """Readers for all of a policy's pools."""

    _kafka: Mapping[str, KafkaSettings]
    """Each pool's Kafka, with its topics' prefix."""
    _pools: Mapping[str, Pool]
    _rules: StoredRules
    _stopping: Stopping = never
    _readers: dict[str, Reader] = field(default_factory=dict)
    _counts: dict[str, Counter[str]] = field(default_factory=dict)
    """By pool, record counts by the reason why they are no stored sessions; empty: they are."""

    def open(self) -> None:
        """Read the other logs' pools to their present ends, then follow them.

        Raises `PoolUnusable`, and the errors of `find_cluster` and `read_partitions`.
        """
        for name in self._pools:
            if name == OWN:
                continue
            kafka = self._kafka[name]
            try:
                cluster = find_cluster(kafka, [TRAJECTORIES], self._stopping)
            except TopicMissing as error:
                raise PoolUnusable(name, error.topic, _MISSING) from error
            numbers = cluster.numbers(TRAJECTORIES)
            places = [(TRAJECTORIES.name, number) for number in numbers]
            reader = Reader(kafka, f"pool-{name}", stopping=self._stopping)
            self._readers[name] = reader
            ends = reader.ends(places)
            for item in read_partitions(kafka, places, ends=ends, stopping=self._stopping):
                self._take(name, item)
            reader.assign(ends)
            self._report(name, kafka)

    def update(self) -> None:
        """Add the sessions that were stored since the last call."""
        for name, reader in self._readers.items():
            while received := reader.poll(0):
                for item in received:
                    self._take(name, item)

    def sessions(self, wanted: OfPools) -> dict[str, ValidSession]:
        """Return these sessions by id, without those whose record is gone or does not count.

        Raises the errors of `read_partitions`.
        """
        read: dict[str, ValidSession] = {}
        for pool in dict.fromkeys(name for name, _ in wanted):
            names = {
                (each.partition, each.offset): each.session_id
                for name, each in wanted
                if name == pool
            }
            for item in self._records(self._kafka[pool], sorted(names)):
                session = self._session(pool, item)
                # Otherwise the topic was made anew, and another record is at this place.
                if session and session.source.session_id == names[item.partition, item.offset]:
                    read[session.source.session_id] = session
        return read

    def close(self) -> None:
        """Stop following the pools."""
        for reader in self._readers.values():
            reader.close()

    def _records(
        self, kafka: KafkaSettings, places: Sequence[tuple[int, int]]
    ) -> Iterator[Received]:
        """Yield the records at these partitions and offsets, if they still exist."""
        waiting = runs(places)
        while waiting:
            # One reading begins at one offset per partition, so a partition's other runs wait.
            now = {number: (first, last) for number, first, last in reversed(waiting)}
            waiting = [run for run in waiting if now[run[0]] != run[1:]]
            starts = {(TRAJECTORIES.name, number): first for number, (first, _) in now.items()}
            ends = {(TRAJECTORIES.name, number): last + 1 for number, (_, last) in now.items()}
            for item in read_partitions(
                kafka,
                list(starts),
                starts=starts,
                ends=ends,
                limit_s=WITHOUT_LIMIT,
                stopping=self._stopping,
            ):
                if (item.partition, item.offset) in places:
                    yield item

    def _session(self, pool: str, item: Received) -> ValidSession | None:
        if not isinstance(item.record, Trajectory):
            return None
        session = stored_session(pool, item.record, self._rules, item.partition, item.offset)
        if isinstance(session, FailedSession):
            _log.warning("pool %s: %s: %s", pool, session.source.session_id, session.detail)
            return None
        return session

    def _take(self, name: str, item: Received) -> None:
        record = item.record
        if not isinstance(record, Trajectory):
            reason = "unreadable"
        elif not (reason := left_out(record, self._rules)):
            group = stored_group(name, record, self._rules, item.partition, item.offset)
            self._pools[name].put(group)
        counts = self._counts.setdefault(name, Counter())
        counts[reason] += 1
        if counts.total() % _SHOWN == 0:
            _log.info("pool %s: %d records read", name, counts.total())

    def _report(self, name: str, kafka: KafkaSettings) -> None:
        counts = self._counts.get(name, Counter())
        taken = counts[""]
        others = ", ".join(f"{count} {reason}" for reason, count in counts.items() if reason)
        topic = kafka.topic_prefix + TRAJECTORIES.name
        if others and not taken:
            raise PoolUnusable(name, topic, f"has no session to train: {others}")
        listed = f", {others}" if others else ""
        level = logging.INFO if taken else logging.WARNING
        _log.log(level, "pool %s: %d sessions of %s%s", name, taken, topic, listed)


def pools_of(
    settings: TrainerSettings, tokenizer_hash: str | None, stopping: Stopping = never
) -> tuple[Mixing, PoolTopics]:
    """Return a policy's mixer with its pools, and the reader for their topics, not open yet."""
    trainer = settings.trainer
    sections = trainer.replay.pools if trainer.replay.name else {}
    trained = source_kafka(settings)
    kafka = {
        name: trained
        if pool.prefix is None
        else settings.kafka.model_copy(update={"topic_prefix": pool.prefix})
        for name, pool in sections.items()
    }
    mixing = mixing_of(trainer)
    stored_rules = StoredRules(
        settings.run.policy,
        trainer.reward_weights,
        tokenizer_hash,
        settings.run.policies,
        trainer.chains,
    )
    topics = PoolTopics(kafka, mixing.pools, stored_rules, stopping)
    mixing.stored = topics
    return mixing, topics


def opened_pools(
    settings: TrainerSettings, tokenizer_hash: str, kept: Mapping[str, Any], stopping: Stopping
) -> tuple[Mixing, PoolTopics]:
    """Return both, opened for a trainer's start; `kept`: the pools in its checkpoint.

    Raises the errors of `PoolTopics.open`.
    """
    mixing, topics = pools_of(settings, tokenizer_hash, stopping)
    topics.open()
    mixing.restore(kept)
    return mixing, topics


def runs(places: Sequence[tuple[int, int]]) -> list[tuple[int, int, int]]:
    """Return runs (partition, first and last offset) that cover these places, which are sorted.

    Places near each other share a run: reading the records between them costs less than a seek.
    """
    joined: list[tuple[int, int, int]] = []
    for number, offset in places:
        if joined and joined[-1][0] == number and offset - joined[-1][2] <= _NEAR:
            joined[-1] = (number, joined[-1][1], offset)
        else:
            joined.append((number, offset, offset))
    return joined
