"""The first reading of `control`, up to its present end, when a trainer starts.

The same reader then goes on in a thread of its own (`TrainerProcess.control`).
"""

import time

from infra.errors import SeamlessFlowError
from infra.kafka.client import Partition
from infra.kafka.reader import Reader
from schemas.topics import CONTROL
from trainer.recovery.control_state import ControlState
from trainer.roles.roles import TrainerRoles

_READ_TIMEOUT_S = 600.0
_POLL_S = 0.2
_CONTROL: Partition = (CONTROL.name, 0)


class LogUnreadable(SeamlessFlowError):
    """A failure to read `control` to its end, or an end before the checkpoint's offset."""

    def __init__(self, offset: int, end: int, reason: str) -> None:
        self.offset = offset
        self.end = end
        self.reason = reason
        super().__init__(f"control at offset {offset} of {end}: {reason}")


def read_recorded(reader: Reader, control_state: ControlState, roles: TrainerRoles) -> None:
    """Fold `control` from the checkpoint's offset to its present end into both states.

    `reader` goes on after that. Raise `LogUnreadable`.
    """
    end = reader.ends([_CONTROL])[_CONTROL]
    if control_state.offset > end:
        raise LogUnreadable(control_state.offset, end, "the checkpoint is ahead of the log")
    reader.assign({_CONTROL: control_state.offset})
    deadline = time.monotonic() + _READ_TIMEOUT_S
    # To the end as of now: other processes go on writing, so the end itself moves on.
    while control_state.offset < end:
        if time.monotonic() > deadline:
            raise LogUnreadable(control_state.offset, end, f"not read in {_READ_TIMEOUT_S:g} s")
        for received in reader.poll(_POLL_S):
            control_state.apply(received.record, received.offset)
            roles.apply(received.record)
