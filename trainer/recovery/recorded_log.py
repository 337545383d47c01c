"""The log that a trainer starts with: the check that it fits the checkpoint, and a first reading.

The log must still have all records from which the checkpoint continues, and reach at least that
far. `control` is read to its present end. Then the same reader goes on in its own thread
(`ProcessParts.control`).
"""

from collections.abc import Mapping

from seamlessflow.infra.clock import Stopping, never
from seamlessflow.infra.errors import SeamlessFlowError
from seamlessflow.infra.kafka.bounds import BoundsLookup
from seamlessflow.infra.kafka.client import LogPartition
from seamlessflow.infra.kafka.outage import ASK_S, Outage
from seamlessflow.infra.kafka.reader import Reader
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.schemas.topics import CONTROL, TRAJECTORIES
from seamlessflow.trainer.recovery.checkpoint import Checkpoint
from seamlessflow.trainer.recovery.control_state import ControlState
from seamlessflow.trainer.roles.gang import GangWatch

_POLL_S = 0.2
_CONTROL: LogPartition = (CONTROL.name, 0)


class CheckpointAhead(SeamlessFlowError):
    """A checkpoint from after `control`'s present end, so the log is another one."""

    lasting = True

    def __init__(self, offset: int, end: int) -> None:
        self.offset = offset
        self.end = end
        super().__init__(f"the checkpoint is ahead of control: at offset {offset} of {end}")


class RecordsGone(SeamlessFlowError):
    """A partition that no longer has the record from which a checkpoint continues."""

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
    """Raise `RecordsGone` if records after the checkpoint were removed.

    `source`: the Kafka with `trajectories`, if not `kafka`. Also raises the errors that
    `Outage.endure` raises.
    """
    sessions: dict[LogPartition, int] = {
        (TRAJECTORIES.name, number): at for number, at in checkpoint.offsets.items() if at >= 0
    }
    _check(source or kafka, sessions, stopping)
    if checkpoint.directory is not None:
        _check(kafka, {(CONTROL.name, 0): checkpoint.control_state.offset}, stopping)


def read_recorded(
    kafka: KafkaSettings,
    reader: Reader,
    control_state: ControlState,
    gang: GangWatch,
    stopping: Stopping,
) -> None:
    """Fold `control` from the checkpoint's offset to its present end into both states.

    `reader` is left at that end. Raises `CheckpointAhead`. Also raises the errors that
    `Outage.endure` raises, if no record comes for `kafka.wait_s`.
    """
    end = reader.ends([_CONTROL])[_CONTROL]
    if control_state.offset > end:
        raise CheckpointAhead(control_state.offset, end)
    reader.assign({_CONTROL: control_state.offset})
    outage = Outage(kafka, stopping)
    # To the end as of now: other processes go on writing, so the end itself moves on.
    # The last offsets may have no records, for example because they were erased.
    while max(control_state.offset, reader.position(_CONTROL)) < end:
        received = reader.poll(_POLL_S)
        for item in received:
            control_state.apply(item.record, item.offset)
            gang.apply(item.record)
        if received and not stopping():
            outage = Outage(kafka, stopping)
        else:
            outage.endure_silence(f"control is read to {control_state.offset} of {end}")


def refuse_gone(
    offsets: Mapping[LogPartition, int], kept: Mapping[LogPartition, tuple[int, int]]
) -> None:
    """Raise `RecordsGone` for an offset that its partition does not keep. Pure."""
    for (topic, number), at in offsets.items():
        begin, end = kept[topic, number]
        if not begin <= at <= end:
            raise RecordsGone(topic, number, at, (begin, end))


def _check(kafka: KafkaSettings, offsets: Mapping[LogPartition, int], stopping: Stopping) -> None:
    lookup = BoundsLookup(kafka)
    outage = Outage(kafka, stopping)
    try:
        while len(kept := lookup.bounds(list(offsets), ASK_S)) < len(offsets):
            outage.endure_silence(f"{len(offsets) - len(kept)} partitions without a leader")
    finally:
        lookup.close()
    refuse_gone(offsets, kept)
