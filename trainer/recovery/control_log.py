"""The first reading of `control`, up to its present end, when a trainer starts.

The same reader then goes on in a thread of its own (`ProcessParts.control`).
"""

from seamlessflow.infra.deadline import Stopping
from seamlessflow.infra.errors import SeamlessFlowError
from seamlessflow.infra.kafka.client import Partition
from seamlessflow.infra.kafka.outage import Outage
from seamlessflow.infra.kafka.reader import Reader
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.schemas.topics import CONTROL
from seamlessflow.trainer.recovery.control_state import ControlState
from seamlessflow.trainer.roles.gang_watch import GangWatch

_POLL_S = 0.2
_CONTROL: Partition = (CONTROL.name, 0)


class CheckpointAhead(SeamlessFlowError):
    """A checkpoint that was made behind the present end of `control`: the log is another one."""

    lasting = True

    def __init__(self, offset: int, end: int) -> None:
        self.offset = offset
        self.end = end
        super().__init__(f"the checkpoint is ahead of control: at offset {offset} of {end}")


def read_recorded(
    kafka: KafkaSettings,
    reader: Reader,
    control_state: ControlState,
    gang: GangWatch,
    stopping: Stopping,
) -> None:
    """Fold `control` from the checkpoint's offset to its present end into both states.

    `reader` goes on after that. Raises `CheckpointAhead`, and what `Outage.endure` raises if no
    record comes for `kafka.wait_s`.
    """
    end = reader.ends([_CONTROL])[_CONTROL]
    if control_state.offset > end:
        raise CheckpointAhead(control_state.offset, end)
    reader.assign({_CONTROL: control_state.offset})
    outage = Outage(kafka, stopping)
    # To the end as of now: other processes go on writing, so the end itself moves on.
    # At its end may stand offsets without a record, such as of erased ones.
    while max(control_state.offset, reader.position(_CONTROL)) < end:
        received = reader.poll(_POLL_S)
        for item in received:
            control_state.apply(item.record, item.offset)
            gang.apply(item.record)
        if received and not stopping():
            outage = Outage(kafka, stopping)
        else:
            outage.endure_silence(f"control is read to {control_state.offset} of {end}")
