"""Training on recorded sessions: its `control`, and another prefix's trajectories.

It has no gateway, manager or worker, and therefore no events; `control` names the recording.
"""

from collections.abc import Iterator
from typing import Self

import orjson

from seamlessflow.infra.clock import Stopping
from seamlessflow.infra.errors import SeamlessFlowError
from seamlessflow.infra.kafka.client import LogPartition, Received
from seamlessflow.infra.kafka.start.cluster import find_cluster
from seamlessflow.infra.kafka.topics.existing import partition_counts
from seamlessflow.infra.kafka.unreadable import Skipped
from seamlessflow.infra.kafka.whole_topic import read_topic
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.recorded.audit.rounds import ManagersProgress, Rounds
from seamlessflow.schemas.records import LineageStarted
from seamlessflow.schemas.topics import CONTROL, SESSIONS, TRAJECTORIES


class NothingToAudit(SeamlessFlowError):
    """A prefix without a run with agents, and without a training that names its recording."""

    lasting = True

    def __init__(self, prefix: str, reason: str) -> None:
        self.prefix = prefix
        super().__init__(
            f"there is no {prefix}{SESSIONS.name}, and {reason}: what can be audited is the prefix "
            "of a run with agents, or that of --to of a training on recorded sessions"
        )


class RecordingRounds:
    """Reader of both topics, as `Rounds` reads a run's topics. A context manager."""

    def __init__(
        self, settings: KafkaSettings, source: str, skipped: Skipped, stopping: Stopping
    ) -> None:
        """Find the topics; `source` is the recording's prefix."""
        rounds = Rounds(settings, "", skipped, stopping, (CONTROL,))
        recorded = settings.model_copy(update={"topic_prefix": source})
        # A commit promises trajectories, so `control` is measured first.
        self._both = rounds, Rounds(recorded, "", skipped, stopping, (TRAJECTORIES,))

        self.notices = (
            f"a training on the recording {source}: its commands and turns, and what its sessions "
            "promise, are not checkable here, but under the prefix of the run that recorded them",
        )

    partitions = 1
    """Partitions of `sessions`, which is not read."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for rounds in self._both:
            rounds.__exit__(*error)

    def progress(self) -> ManagersProgress:
        """Return no progress: there is no manager."""
        return ManagersProgress({}, {})

    def measure(self) -> set[LogPartition]:
        """Begin a round: measure all ends; return the partitions whose first records are gone."""
        return set[LogPartition]().union(*(rounds.measure() for rounds in self._both))

    def read(self) -> Iterator[Received]:
        """Yield all records up to the measured ends, each partition's in order."""
        for rounds in self._both:
            yield from rounds.read()


def recorded_source(settings: KafkaSettings, stopping: Stopping) -> str | None:
    """Return the prefix of the recording that was trained, or None for a run with agents.

    Raises `NothingToAudit`, and what `find_cluster` raises.
    """
    find_cluster(settings, stopping=stopping)
    prefix = settings.topic_prefix
    counts = partition_counts(settings)
    if prefix + SESSIONS.name in counts:
        return None
    if prefix + CONTROL.name not in counts:
        if prefix + TRAJECTORIES.name in counts:
            raise NothingToAudit(prefix, f"{prefix}{TRAJECTORIES.name} is a recording alone")
        return None
    source = _named_source(settings, stopping)
    if source is None:
        raise NothingToAudit(prefix, f"{prefix}{CONTROL.name} names no recording")
    if source + TRAJECTORIES.name not in counts:
        raise NothingToAudit(prefix, f"no {source}{TRAJECTORIES.name}, which it trained, any more")
    return source


def _named_source(settings: KafkaSettings, stopping: Stopping) -> str | None:
    """Return the newest lineage's source, or None if `control` has none."""
    source: str | None = None
    for item in read_topic(settings, CONTROL, Skipped(), stopping=stopping):
        if isinstance(item.record, LineageStarted):
            source = orjson.loads(item.record.settings)["trainer"].get("source_prefix")
    return source
