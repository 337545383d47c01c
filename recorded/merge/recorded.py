"""Recorded trajectories, read to compare them with replayed ones."""

from seamlessflow.infra.deadline import Stopping, never
from seamlessflow.infra.kafka.unreadable import Skipped
from seamlessflow.infra.kafka.whole_topic import read_topic
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.recorded.merge.verification import Comparison
from seamlessflow.recorded.select.selection import SessionSelection
from seamlessflow.schemas.records import Trajectory
from seamlessflow.schemas.topics import TRAJECTORIES

_CLOCKS_MS = 60_000
"""Most by which a session's end, by the manager's clock, may differ from its record's time."""


def compared(
    settings: KafkaSettings,
    selection: SessionSelection,
    comparison: Comparison,
    skipped: Skipped,
    stopping: Stopping = never,
) -> None:
    """Apply all recorded trajectories that the selection chooses to `comparison`.

    Raises what `read_topic` raises.
    """
    begun = set[int]()
    for item in read_topic(settings, TRAJECTORIES, skipped, stopping=stopping):
        # Behind the first offset retention removed what was written before.
        if item.partition not in begun and item.offset > 0:
            kept_ms = item.timestamp_ms + _CLOCKS_MS
            comparison.kept_since_ms = max(comparison.kept_since_ms, kept_ms)
        begun.add(item.partition)
        if isinstance(item.record, Trajectory) and selection.chooses(item.record):
            comparison.apply(item.record, item.partition, item.offset)
