"""Check that the log still has all that a checkpoint continues from."""

from collections.abc import Mapping

from seamlessflow.infra.deadline import Stopping, never
from seamlessflow.infra.errors import SeamlessFlowError
from seamlessflow.infra.kafka.bounds import BoundsLookup
from seamlessflow.infra.kafka.client import Partition
from seamlessflow.infra.kafka.outage import ASK_S, Outage
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.schemas.topics import CONTROL, TRAJECTORIES
from seamlessflow.trainer.recovery.checkpoint import Checkpoint


class RecordsGone(SeamlessFlowError):
    """A partition no longer has the record that a checkpoint continues at."""

    lasting = True

    def __init__(self, topic: str, partition: int, low_water: int, kept: tuple[int, int]) -> None:
        self.topic = topic
        self.partition = partition
        self.low_water = low_water
        self.kept = kept
        begin, end = kept
        super().__init__(
            f"the checkpoint continues {topic}[{partition}] at offset {low_water}, but the topic "
            f"keeps {begin} to {end}: a retention that is shorter than the distance to the "
            "checkpoint removed records, or the topic was made anew. Training on would miss "
            "sessions: see docs/retention.md"
        )


def check_kept(
    kafka: KafkaSettings,
    checkpoint: Checkpoint,
    stopping: Stopping = never,
    source: KafkaSettings | None = None,
) -> None:
    """Raise `RecordsGone` if records behind the checkpoint were removed.

    `source`: where `trajectories` are, if not in `kafka`. Also raises what `Outage.endure` raises.
    """
    sessions: dict[Partition, int] = {
        (TRAJECTORIES.name, number): at for number, at in checkpoint.offsets.items() if at >= 0
    }
    _check(source or kafka, sessions, stopping)
    if checkpoint.directory is not None:
        _check(kafka, {(CONTROL.name, 0): checkpoint.control_state.offset}, stopping)


def _check(kafka: KafkaSettings, offsets: Mapping[Partition, int], stopping: Stopping) -> None:
    lookup, outage = BoundsLookup(kafka), Outage(kafka, stopping)
    try:
        while len(kept := lookup.bounds(list(offsets), ASK_S)) < len(offsets):
            outage.endure_silence(f"{len(offsets) - len(kept)} partitions without a leader")
    finally:
        lookup.close()
    refuse_gone(offsets, kept)


def refuse_gone(
    offsets: Mapping[Partition, int], kept: Mapping[Partition, tuple[int, int]]
) -> None:
    """Raise `RecordsGone` for an offset outside of what its partition keeps. Pure."""
    for (topic, number), at in offsets.items():
        begin, end = kept[topic, number]
        if not begin <= at <= end:
            raise RecordsGone(topic, number, at, (begin, end))
