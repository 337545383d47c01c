"""Merging of recorded sessions again, over some partitions of `sessions`."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import orjson

from seamlessflow.consumers.trajectories.sessions.assemble import assembled
from seamlessflow.consumers.trajectories.sessions.partition import LoggedPartition
from seamlessflow.infra.blobs import largest_trajectory
from seamlessflow.infra.clock import Stopping, never
from seamlessflow.infra.kafka.client import Received
from seamlessflow.infra.kafka.reader import ReadingRules
from seamlessflow.infra.kafka.unreadable import Skipped, Unreadable
from seamlessflow.infra.kafka.whole_topic import read_partitions
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.recorded.merge.difference import Difference
from seamlessflow.recorded.merge.rewriting import rewriting
from seamlessflow.recorded.merge.rules import ALL, RECORDED, MergeRules
from seamlessflow.recorded.merge.targets import (
    Destination,
    Files,
    MergeProgress,
    Nowhere,
    Target,
    Topics,
)
from seamlessflow.recorded.merge.verification import Digest, digest
from seamlessflow.recorded.select.refold import Refold
from seamlessflow.recorded.select.selection import SessionSelection
from seamlessflow.schemas.records import Trajectory
from seamlessflow.schemas.topics import SESSIONS

_COUNTED = 1_000
"""Events after which the progress is shown."""
_RECENT_MS = 60_000


@dataclass(frozen=True, slots=True)
class MergeJob:
    """Partitions to merge, up to ends that were measured before reading began."""

    kafka: KafkaSettings
    bounds: Mapping[int, tuple[int, int]]
    """By partition of `sessions`, the first offset and the one behind the last event."""
    selection: SessionSelection = field(default_factory=SessionSelection)
    rules: MergeRules = RECORDED
    begun_ms: int = 0
    """When the bounds were measured, in milliseconds since the epoch."""
    digests: bool = False
    """True: keep a digest of each trajectory."""
    differences: bool = False
    """True: compare the merges by each rule, and by all rules, with the recorded ones."""
    prefix: str | None = None
    """Prefix of the topic to write."""
    directory: Path | None = None
    """Directory for the files to write."""

    def content(self) -> str:
        """Return what decides which trajectories a target gets, as JSON."""
        return orjson.dumps([self.rules.encode(), self.selection.encode()]).decode()

    def part(self, numbers: Sequence[int]) -> "MergeJob":
        """Return the job for some of the partitions."""
        return replace(self, bounds={number: self.bounds[number] for number in numbers})


@dataclass(slots=True)
class Merged:
    """Outcome over some partitions."""

    events: int = 0
    sessions: int = 0
    """Sessions that were chosen, ended, and merged."""
    tokens: int = 0
    """Tokens in them, including prompts."""
    sessions_open: int = 0
    """Sessions that may be chosen and did not end before the measured end."""
    beginnings_gone: int = 0
    """Sessions whose first events retention removed."""
    partitions_kept: int = 0
    """Partitions that an earlier replay into this target finished."""
    partitions_new: int = 0
    """Other partitions, which have events."""
    went_on: bool = False
    """True if an earlier replay had written a part, whose sessions are not read again."""
    matched: set[str] = field(default_factory=set)
    """Names in the selection that some read session has."""
    skipped: Skipped = field(default_factory=Skipped)
    digests: dict[str, Digest] = field(default_factory=dict)
    ended_ms: dict[str, int] = field(default_factory=dict)
    """When each session in `digests` ended."""
    recent: set[str] = field(default_factory=set)
    """Sessions in `digests` that ended less than a minute before the replay began."""
    judged: int = 0
    """Sessions to which the rules give a further reward."""
    late: int = 0
    """Sessions to which the rules give late rewards."""
    differences: dict[str, Difference] = field(default_factory=dict)
    masked: Counter[str] = field(default_factory=Counter)
    """Sampled tokens that are not trained, by reason."""

    def add(self, other: "Merged") -> None:
        """Add the outcome over other partitions."""
        for name in ("events", "sessions", "tokens", "sessions_open", "beginnings_gone"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.partitions_kept += other.partitions_kept
        self.partitions_new += other.partitions_new
        self.went_on |= other.went_on
        self.matched |= other.matched
        self.skipped.garbage.update(other.skipped.garbage)
        self.digests |= other.digests
        self.ended_ms |= other.ended_ms
        self.recent |= other.recent
        self.judged += other.judged
        self.late += other.late
        self.masked.update(other.masked)
        for label, difference in other.differences.items():
            self.differences.setdefault(label, Difference()).add(difference)


def merge(
    job: MergeJob, count: Callable[[int], None] = lambda _: None, stopping: Stopping = never
) -> Merged:
    """Merge the job's partitions; call `count` with the number of further events read.

    Raises `NewerRelease` at a newer release's record, `TargetTaken`, and what `read_partitions` and
    `TransactionalProducer` raise.
    """
    target = _target(job)
    try:
        return _Merge(job, target).run(count, stopping)
    finally:
        target.close()


def _target(job: MergeJob) -> Target:
    content = job.content()
    if job.prefix is not None:
        return Topics(Destination(job.kafka, job.prefix), content, list(job.bounds))
    return Nowhere() if job.directory is None else Files(job.directory, content)


class _Merge:
    """Merging a job's partitions: one fold by the job's rules, further ones for differences."""

    def __init__(self, job: MergeJob, target: Target) -> None:
        self._job = job
        self._target = target
        self._merged = Merged()
        self._labels = [] if not job.differences else [*dict(job.rules.each()), ALL]
        self._folds: dict[int, list[Refold]] = {}
        self._begun: dict[int, MergeProgress] = {}

    def run(self, count: Callable[[int], None], stopping: Stopping) -> Merged:
        for number in self._job.bounds:
            progress = self._target.begin(number)
            self._note(number, progress)
            if progress is None:
                continue
            self._begun[number] = progress
            self._folds[number] = [self._fold(number, rules, progress) for rules in self._rules()]
        for item in self._events(stopping):
            self._apply(item)
            if self._merged.events % _COUNTED == 0:
                count(_COUNTED)
            if self._target.full:
                self._reached(finished=False)
        count(self._merged.events % _COUNTED)
        self._reached(finished=True)
        for number, folds in self._folds.items():
            self._merged.matched |= folds[0].matched
            self._merged.sessions_open += folds[0].open
            if self._job.bounds[number][0] > 0 and not self._begun[number].covered:
                self._merged.beginnings_gone += folds[0].beginnings_gone
        return self._merged

    def _note(self, number: int, progress: MergeProgress | None) -> None:
        """Note how far an earlier replay came in a partition; None if it finished the partition."""
        start, end = self._job.bounds[number]
        kept = progress is None or progress.covered >= end > start
        self._merged.partitions_kept += kept
        self._merged.partitions_new += not kept and end > start
        self._merged.went_on |= progress is None or progress.covered > 0

    def _rules(self) -> list[MergeRules]:
        if not self._job.differences:
            return [self._job.rules]
        return [RECORDED, *dict(self._job.rules.each()).values(), self._job.rules]

    def _fold(self, number: int, rules: MergeRules, begun: MergeProgress) -> Refold:
        log = LoggedPartition(number, epoch=begun.rebuild_epoch, position=begun.rebuild)
        return Refold(log, self._job.selection, rewriting(rules))

    def _events(self, stopping: Stopping) -> Iterator[Received]:
        ends = {(SESSIONS.name, n): self._job.bounds[n][1] for n in self._folds}
        starts = {
            (SESSIONS.name, n): max(self._begun[n].rebuild, self._job.bounds[n][0])
            for n in self._folds
        }
        return read_partitions(
            self._job.kafka,
            list(ends),
            starts=starts,
            ends=ends,
            rules=ReadingRules(folds=True),
            stopping=stopping,
        )

    def _apply(self, item: Received) -> None:
        self._merged.events += 1
        if isinstance(item.record, Unreadable):
            self._merged.skipped.apply(item.topic, item.record)
            return
        folds = self._folds[item.partition]
        ended = [fold.apply(item.record, item.offset) for fold in folds]
        if None in ended:  # a session ends by some rules and not by others only if the fold failed
            return
        largest = largest_trajectory(self._job.kafka)
        made = [
            assembled(session, item.partition, largest)[0]
            for session in ended
            if session is not None
        ]
        new = item.offset >= self._begun[item.partition].covered
        if made and new and self._job.selection.chooses(made[0]):
            self._take(made)

    def _take(self, made: list[Trajectory]) -> None:
        """Take a session's merges; the first one is by the recorded rules if there are several."""
        first = made[0]
        last = made[-1]
        self._merged.sessions += 1
        self._merged.tokens += len(first.loss_mask)
        self._merged.masked.update(last.masked_tokens)
        if self._job.digests:
            self._merged.digests[first.session_id] = digest(first)
            self._merged.ended_ms[first.session_id] = first.finalized_at_ms
            if first.finalized_at_ms > self._job.begun_ms - _RECENT_MS:
                self._merged.recent.add(first.session_id)
        self._merged.judged += first.session_id in self._job.rules.judged
        self._merged.late += first.session_id in self._job.rules.late
        for label, other in zip(self._labels, made[1:], strict=True):
            self._merged.differences.setdefault(label, Difference()).apply(first, other)
        self._target.add(last)

    def _reached(self, finished: bool) -> None:
        progress = {}
        for number, (fold, *_) in self._folds.items():
            end = self._job.bounds[number][1] if finished else fold.log.position
            progress[number] = self._begun[number].reached(end, *fold.rebuild_from)
        self._target.reached(progress, finished)
