"""The interface between the steps and the holder of the weights: one device, or a gang of ranks.

The trainer's own is `trainer/link.py`: it calls one of these in the gang's first rank.
Does not import torch, so that the steps and their tests do not need it. But for `save`
calls never overlap; they come from the work thread, or from the loop's thread while no work is
under way. `train`, `write_weights`, `save` and `load` may take minutes.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from seamlessflow.infra.errors import SeamlessFlowError
from seamlessflow.trainer.data.chains import Annotated, Column
from seamlessflow.trainer.data.packing import MicroBatch

Computing = Callable[[bool], None]
"""Told when this process begins to compute its own part of a step (True), and when it waits in the
step for others of the gang (False)."""


def unmeasured(computes: bool) -> None:
    """Measure nothing."""


class ModelUnusable(SeamlessFlowError):
    """A model or checkpoint that cannot be trained with these settings."""

    lasting = True

    def __init__(self, directory: str, reason: str) -> None:
        self.directory = directory
        self.reason = reason
        super().__init__(f"{directory}: {reason}")


NO_STEP = -1
"""The number of no step."""


class UpdateFailed(SeamlessFlowError):
    """An update that must not be applied: a loss failed, or a gradient is not finite.

    Another start would compute the same. What is in memory now belongs to no run.
    """

    lasting = True

    def __init__(self, reason: str, chains: Sequence[int] = ()) -> None:
        self.reason = reason
        self.chains = tuple(chains)
        """Chains that the failure shows in, by their number in the update, as far as known."""
        super().__init__(reason)


@dataclass(frozen=True, slots=True)
class StepInput:
    """The input of one optimizer update; a step has one or several."""

    micro_batches: Sequence[MicroBatch]
    samples: Sequence[MicroBatch]
    """Tokens of earlier versions, to measure under the weights that sampled them."""

    version: int
    """Version of the weights being trained."""

    learning_rate: float


@dataclass(frozen=True, slots=True)
class Machine:
    """Hardware and software that tensors depend on, besides settings and data."""

    device: str
    """Name of the accelerator, or the instructions of the CPU that torch uses."""
    threads: int
    """CPU threads of torch."""
    torch: str
    """Version of torch."""


class DeviceMemory(Protocol):
    """The memory of the devices that compute. Calls may take seconds."""

    def acquire(self) -> None:
        """Move weights and optimizer to the devices."""

    def release(self) -> int:
        """Move them to the host; return how many bytes of each device are free then, at least."""


class Backend(Protocol):
    """The weights, the optimizer and their device."""

    @property
    def machine(self) -> Machine:
        """Return what computes."""

    @property
    def dtype(self) -> str:
        """Return the element type of published weights."""

    def annotate(self, batches: Sequence[MicroBatch], columns: Sequence[Column]) -> Annotated:
        """Return columns under the present weights: for each micro-batch one of N numbers.

        The first phase of a step; `train` follows, once for each update.
        """

    def train(self, step: StepInput) -> Mapping[str, float]:
        """Make one optimizer update; return its metrics (names in `trainer/metrics/names.py`).

        Without a trained token the weights stay as they are. Raise `UpdateFailed`, on all ranks.
        """

    def remember(self, version: int) -> None:
        """Keep a copy of the present weights, which are `version`, to measure engines against.

        Called once behind each step, so that the back end knows when to renew the reference.
        """

    def remembered(self) -> Sequence[int]:
        """Return the versions of which there still is a copy."""

    def write_weights(self, directory: Path) -> None:
        """Write the model as safetensors, as Hugging Face directories have it.

        This, `snapshot`, `train` and `remember` are called between the start of a step and `rest`.
        """

    def snapshot(self) -> None:
        """Copy weights, optimizer and random state on the host, for `save`; of a gang each rank its
        part.
        """

    def save(self, directory: Path) -> None:
        """Write the oldest snapshot that is not written to the directory of a checkpoint.

        Other calls may overlap this one: a checkpoint is written while the devices do other work.
        """

    def load(self, directory: Path | None, version: int) -> None:
        """Load the checkpoint of `version` in `directory`; None keeps the initial model.

        Called once, before all other methods. Raise `ModelUnusable`.
        """

    def rest(self, step: int = NO_STEP) -> None:
        """Note that the calls of a step are over, until the next one; `NO_STEP` of none.

        Ranks return from `follow` here, so that their loops can give up the device.
        """


class LocalBackend(Backend, DeviceMemory, Protocol):
    """A back end in this process."""

    def follow(self) -> int:
        """Take part in the calls of the gang's first rank, until it rests; return the step that is
        over, or `NO_STEP`. For the other ranks.
        """

    def interrupt(self) -> None:
        """End a wait that is under way with an error, because the process ends. From any thread.

        A further rank of a gang first finishes its part of a checkpoint.
        """
