"""Erasure of sessions from a log: its topics are copied without them, under another prefix.

The prefix belongs to one erasure. The erasure's mark is committed as metadata of the Kafka consumer
group `<prefix>erase`. A repeated call goes on where an earlier one ended, and copies what was
appended.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field

from seamlessflow.infra.blobs import blob_store
from seamlessflow.infra.clock import never
from seamlessflow.infra.errors import SettingsRejected
from seamlessflow.infra.kafka.bounds import BoundsLookup
from seamlessflow.infra.kafka.client import LogPartition
from seamlessflow.infra.kafka.outage import ASK_S, Outage
from seamlessflow.infra.kafka.reader import Reader, ReadingRules
from seamlessflow.infra.kafka.topics.creation import check_prefix
from seamlessflow.infra.kafka.topics.existing import delete_topics, partition_counts
from seamlessflow.infra.kafka.unreadable import Raw
from seamlessflow.infra.kafka.whole_topic import read_partitions
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.recorded.erase.offset_copy import (
    ANSWER_S,
    Bounds,
    Pair,
    copy_with_offsets,
    make_target,
    misplaced,
)
from seamlessflow.recorded.erase.sieve import Sieve, TopicErasure
from seamlessflow.recorded.interchange.topic_copy import CopyRefused
from seamlessflow.schemas.topics import TOPICS

_GROUP = "erase"
Shown = Callable[[str, int, int], None]
"""Function that gets a topic, how many of its offsets the copy has passed, and how many it has."""


@dataclass(frozen=True, slots=True)
class LogErasure:
    """Erasure from the topics under one prefix."""

    kafka: KafkaSettings
    to: str
    sieve: Sieve
    groups: Sequence[str] = ()
    """Kafka consumer groups, without prefix, whose committed offsets are also copied."""

    @property
    def whole(self) -> KafkaSettings:
        """Settings for whole topic names, since source and target have different prefixes."""
        return self.kafka.model_copy(update={"topic_prefix": ""})

    @property
    def mark(self) -> str:
        """Return a hash over what the copy depends on: prefix, sessions, `drop_undecodable`."""
        sessions = sorted(self.sieve.sessions.asked)
        what = [self.kafka.topic_prefix, sessions, self.sieve.drop_undecodable]
        return hashlib.sha256(json.dumps(what).encode()).hexdigest()

    @property
    def pairs(self) -> list[Pair]:
        """Return the contract's topics, each with its copy."""
        return [
            Pair(self.kafka.topic_prefix + name, self.to + name, name != topic.name or plain)
            for topic in TOPICS.values()
            for plain in (not topic.compacted,)
            for name in (topic.name, topic.dead_letters)
        ]


@dataclass(slots=True)
class LogErased:
    """A call's outcome: counts by topic, without prefix."""

    topics: dict[str, TopicErasure] = field(default_factory=dict)
    written_meanwhile: list[str] = field(default_factory=list)
    """Topics that have grown since the copy began."""
    deleted: list[str] = field(default_factory=list)
    """Old topics that were deleted, with their prefix."""
    blobs_deleted: int = 0
    """Count of the erased records' blobs that were deleted with them."""


def erase_from_log(erasure: LogErasure, show: Shown) -> LogErased:
    """Copy the topics without the sessions. Raises `CopyRefused` and what Kafka's clients raise."""
    whole = erasure.whole
    pairs = _existing(erasure)
    bounds = _bounds(whole, [pair.source for pair in pairs])
    for pair in pairs:
        make_target(whole, pair, sum(topic == pair.source for topic, _ in bounds))
    with closing(Reader(whole, _GROUP, group=f"{erasure.to}{_GROUP}")) as reader:
        present = reader.ends(_targets(pairs, bounds), ANSWER_S)
        _claim(erasure, reader, pairs[0], any(present.values()))
        # All before the first: a target that goes on already must not get old records of `fleet`.
        starts = {pair: pair.resume_at(_of(pair, bounds), present) for pair in pairs}
        done = LogErased()
        for pair in pairs:
            name = pair.source.removeprefix(erasure.kafka.topic_prefix)
            _copy(erasure, pair, _of(pair, bounds), starts[pair], done, show, name)
        if wrong := misplaced(pairs, bounds, reader.ends(_targets(pairs, bounds), ANSWER_S)):
            reason = f"other programs write to {', '.join(wrong)}: name another prefix"
            raise CopyRefused(erasure.kafka.topic_prefix, erasure.to, reason)
        now = reader.ends(bounds, ANSWER_S)
    _copy_groups(erasure, [place for place in bounds])
    grown = {place[0] for place, (_, end) in bounds.items() if now[place] != end}
    done.written_meanwhile = sorted(grown)
    return done


def count_in_log(erasure: LogErasure, show: Shown) -> LogErased:
    """Count what an erasure would do; write nothing."""
    whole = erasure.whole
    outcome = LogErased()
    pairs = _existing(erasure)
    bounds = _bounds(whole, [pair.source for pair in pairs])
    for pair in pairs:
        name = pair.source.removeprefix(erasure.kafka.topic_prefix)
        counts = outcome.topics.setdefault(name, TopicErasure())
        ranges = _of(pair, bounds)
        ends = {place: end for place, (_, end) in ranges.items()}
        for item in read_partitions(
            whole, list(ranges), ends=ends, limit_s=ANSWER_S, rules=ReadingRules(decode=Raw)
        ):
            erasure.sieve.kept(name, item, counts)
        show(name, 1, 1)
    return outcome


def delete_old(erasure: LogErasure, done: LogErased) -> None:
    """Delete the old topics, and the blobs that only erased records have.

    Raises `CopyRefused` if records were appended since they were read, and `BlobUnavailable`.
    """
    if done.written_meanwhile:
        grown = ", ".join(done.written_meanwhile)
        reason = f"{grown} grew meanwhile: end the run's processes, and repeat the command"
        raise CopyRefused(erasure.kafka.topic_prefix, erasure.to, reason)
    names = [pair.source for pair in _existing(erasure)]
    store = blob_store(erasure.kafka)
    if store is not None:  # first: only the old topics name them; a repeated call copied nothing
        counted = count_in_log(erasure, lambda *_: None)
        stored = set().union(*(counts.stored for counts in counted.topics.values()))
        done.blobs_deleted = sum(store.remove(sha256) for sha256 in sorted(stored))
    delete_topics(erasure.whole, names)
    done.deleted = names


def _existing(erasure: LogErasure) -> list[Pair]:
    if erasure.to:  # a copy without a prefix is for a run without one
        check_prefix("--to", erasure.to)
    if erasure.to == erasure.kafka.topic_prefix:
        reason = f"{erasure.to!r} is the prefix of the topics to erase from: name another"
        raise SettingsRejected("--to", reason)
    counts = partition_counts(erasure.kafka)
    pairs = [pair for pair in erasure.pairs if pair.source in counts]
    if not pairs:
        prefix = erasure.kafka.topic_prefix
        raise SettingsRejected("erase", f"there are no topics of the prefix {prefix!r}")
    return pairs


def _bounds(whole: KafkaSettings, topics: Sequence[str]) -> Bounds:
    counts = partition_counts(whole)
    places = [(topic, number) for topic in topics for number in range(counts[topic])]
    lookup = BoundsLookup(whole)
    outage = Outage(whole, never, ANSWER_S)
    try:
        while len(bounds := lookup.bounds(places, ASK_S)) < len(places):
            outage.endure_silence(f"{len(places) - len(bounds)} partitions without a leader")
    finally:
        lookup.close()
    return bounds


def _of(pair: Pair, bounds: Bounds) -> Bounds:
    return {place: span for place, span in bounds.items() if place[0] == pair.source}


def _targets(pairs: Sequence[Pair], bounds: Bounds) -> list[LogPartition]:
    names = {pair.source: pair.target for pair in pairs}
    return [(names[topic], number) for topic, number in bounds]


def _claim(erasure: LogErasure, reader: Reader, first: Pair, begun: bool) -> None:
    """Claim the targets for this erasure. Raises `CopyRefused` if they belong to another copy."""
    place = first.target, 0
    offset, mark = reader.committed([place], ANSWER_S)[place]
    if offset >= 0 and mark == erasure.mark:
        return
    if begun:
        reason = (
            "that prefix has records of another copy, or of a run (Kafka keeps the mark of a copy "
            "for offsets.retention.minutes); name another"
        )
        raise CopyRefused(erasure.kafka.topic_prefix, erasure.to, reason)
    reader.commit({place: (0, erasure.mark)})


def _copy(
    erasure: LogErasure,
    pair: Pair,
    bounds: Bounds,
    starts: Mapping[LogPartition, int],
    done: LogErased,
    show: Shown,
    name: str,
) -> None:
    counts = done.topics.setdefault(name, TopicErasure())
    copy_with_offsets(
        erasure.whole,
        pair,
        bounds,
        starts,
        lambda item: erasure.sieve.kept(name, item, counts),
        lambda behind, total: show(name, behind, total),
    )


def _copy_groups(erasure: LogErasure, places: Sequence[LogPartition]) -> None:
    """Commit the run's group offsets for the copy, where they mean the same records."""
    whole = erasure.whole
    prefix = erasure.kafka.topic_prefix
    for group in erasure.groups:
        with closing(Reader(whole, _GROUP, group=prefix + group)) as reader:
            committed = reader.committed(places, ANSWER_S)
        offsets = {
            (erasure.to + topic.removeprefix(prefix), number): at
            for (topic, number), at in committed.items()
            if at[0] >= 0
        }
        with closing(Reader(whole, _GROUP, group=erasure.to + group)) as reader:
            reader.commit(offsets)
