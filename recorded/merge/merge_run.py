"""A replay of recorded sessions: its bounds, its target, its processes, and its verification.

A single session can also be folded by the recorded rules and by others, to show both trees.
"""

import os
from dataclasses import dataclass, field, replace

from seamlessflow.consumers.trajectories.sessions.fold import FOLD_VERSION
from seamlessflow.consumers.trajectories.sessions.partition import LoggedPartition
from seamlessflow.consumers.trajectories.sessions.session import Session
from seamlessflow.infra.clock import Stopping, never, now_ms
from seamlessflow.infra.errors import SettingsRejected
from seamlessflow.infra.kafka.reader import ReadingRules
from seamlessflow.infra.kafka.topics.creation import check_prefix, create_topics
from seamlessflow.infra.kafka.topics.existing import partition_counts
from seamlessflow.infra.kafka.unreadable import Skipped, Unreadable
from seamlessflow.infra.kafka.whole_topic import read_partitions
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.recorded.merge.partitions import Merged, MergeJob
from seamlessflow.recorded.merge.rewriting import rewriting
from seamlessflow.recorded.merge.rules import RECORDED, MergeRules
from seamlessflow.recorded.merge.shards import merge_on
from seamlessflow.recorded.merge.targets import check_target
from seamlessflow.recorded.merge.verification import Comparison, compared
from seamlessflow.recorded.select.reading import Show, partition_bounds
from seamlessflow.recorded.select.refold import Refold
from seamlessflow.recorded.select.selection import SessionSelection
from seamlessflow.schemas.topics import SESSIONS, TRAJECTORIES

_EVENTS_A_PROCESS = 50_000
"""Fewer events are merged before a further process has even started."""


@dataclass(frozen=True, slots=True)
class MergeOutcome:
    """A replay's outcome; `comparison` is None if nothing was verified."""

    merged: Merged
    comparison: Comparison | None
    skipped: Skipped = field(default_factory=Skipped)
    """Records on `trajectories` that could not be read."""
    judgements: int = 0
    """Sessions for which the rules have a further reward."""
    selection: SessionSelection = field(default_factory=SessionSelection)

    @property
    def missing(self) -> list[str]:
        """Names in the selection that no session has; empty if only the rest was read."""
        return [] if self.merged.went_on else self.selection.missing(self.merged.matched)

    @property
    def done_before(self) -> bool:
        """True if an earlier replay had merged all sessions that have ended."""
        return self.merged.partitions_kept > 0 and not self.merged.partitions_new

    @property
    def verified(self) -> bool:
        """False if a recorded trajectory is missing, or differs from what its events give."""
        comparison = self.comparison
        return comparison is None or not (comparison.different or comparison.missing)


def replay_merge(
    job: MergeJob,
    processes: int | None,
    show: Show,
    stopping: Stopping,
) -> MergeOutcome:
    """Merge the sessions that the job selects, within bounds that are measured now.

    `show` is called with two counts: further events read, and all events to read. Raises
    `SettingsRejected`, and what `merge_on` and `compared` raise.
    """
    check(job)
    bounds = partition_bounds(job.kafka, job.selection, stopping)
    events = sum(end - start for start, end in bounds.values())
    if job.prefix is not None:
        _make_topic(job.kafka, job.prefix, stopping)
    check_target(job.kafka, job.prefix, job.directory, job.content(), stopping)
    merged = merge_on(
        processes or _processes(events, len(bounds)),
        replace(job, bounds=bounds, begun_ms=now_ms()),
        lambda count: show(count, events),
        stopping,
    )
    skipped = Skipped()
    comparison = None
    if job.digests:
        recent = frozenset(merged.recent)
        comparison = Comparison(merged.digests, bounds, recent, merged.ended_ms)
        compared(job.kafka, job.selection, comparison, skipped, stopping)
    return MergeOutcome(merged, comparison, skipped, len(job.rules.judged), job.selection)


def check(job: MergeJob) -> None:
    """Raise `SettingsRejected` for options that contradict each other."""
    if job.digests and job.rules != RECORDED:
        reason = "compares with what was recorded, so it goes with no other rules: use --diff"
        raise SettingsRejected("--verify", reason)
    if job.differences and job.rules == RECORDED:
        reason = "needs a rule that differs, such as --siblings all"
        raise SettingsRejected("--diff", reason)
    if (job.digests or job.differences) and (job.prefix is not None or job.directory is not None):
        reason = "goes without --to and --to-directory: it compares all sessions, and writes none"
        raise SettingsRejected("--verify" if job.digests else "--diff", reason)
    if job.rules.fold_version is not None and job.rules.fold_version > FOLD_VERSION:
        raise SettingsRejected("--fold-version", f"this release knows rules up to {FOLD_VERSION}")
    if job.prefix is not None:
        check_prefix("--to", job.prefix)
    if job.prefix == job.kafka.topic_prefix:
        raise SettingsRejected("--to", "is the prefix of the recorded topics: name another")


def two_sessions(
    settings: KafkaSettings, session_id: str, rules: MergeRules, stopping: Stopping = never
) -> tuple[Session, Session] | None:
    """Return a session by the recorded rules and by `rules`; None if it did not end.

    If several sessions have one name, the first counts. Raises what `read_partitions` raises.
    """
    chosen = SessionSelection(sessions=frozenset([session_id]))
    ((number, (start, end)),) = partition_bounds(settings, chosen, stopping).items()
    place = SESSIONS.name, number
    folds = [
        Refold(LoggedPartition(number), chosen, rewriting(variant)) for variant in (RECORDED, rules)
    ]
    for item in read_partitions(
        settings,
        [place],
        starts={place: start},
        ends={place: end},
        rules=ReadingRules(folds=True),
        stopping=stopping,
    ):
        if isinstance(item.record, Unreadable):
            continue
        first, other = (fold.apply(item.record, item.offset) for fold in folds)
        if first is not None and other is not None:
            return first, other
    return None


def _processes(events: int, partitions: int) -> int:
    """Return how many processes merge so many events soonest."""
    cores = len(os.sched_getaffinity(0))
    return max(1, min(cores, partitions, events // _EVENTS_A_PROCESS))


def _make_topic(kafka: KafkaSettings, prefix: str, stopping: Stopping) -> None:
    """Create the target topic with as many partitions as the recorded one has."""
    counts = partition_counts(kafka)
    if prefix + SESSIONS.name in counts:
        raise SettingsRejected("--to", f"{prefix} is the prefix of a run's topics: name another")
    count = counts[kafka.topic_prefix + TRAJECTORIES.name]
    target = kafka.model_copy(update={"topic_prefix": prefix})
    create_topics(target, [replace(TRAJECTORIES, partitions=count)], stopping=stopping)
