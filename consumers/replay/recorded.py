"""Recorded trajectories, read to compare them with replayed ones."""

from consumers.history.selection import SessionSelection
from consumers.replay.verification import Comparison
from infra.deadline import Stopping, never
from infra.kafka.unreadable import Skipped
from infra.kafka.whole_topic import read_topic
from infra.settings import KafkaSettings
from schemas.records import Trajectory
from schemas.topics import TRAJECTORIES


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
    for item in read_topic(settings, TRAJECTORIES, skipped, stopping=stopping):
        if isinstance(item.record, Trajectory) and selection.chooses(item.record):
            comparison.apply(item.record, item.partition, item.offset)
