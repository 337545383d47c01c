"""The interface between the steps and what holds the weights: one device, or a gang of ranks.

The trainer's own back end is `trainer/link.py`, which calls another one in the gang's first rank.
This module does not import torch, so the steps and their tests do not need it. Calls never overlap,
except `save`. They come from the work thread, or from the loop's thread while no work is under way.
`train`, `write_weights`, `save` and `load` may take minutes.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from seamlessflow.infra.errors import SeamlessFlowError
from seamlessflow.trainer.data.chains import AnnotatedColumns, Column
from seamlessflow.trainer.data.packing import Layout, MicroBatch

Computing = Callable[[bool], None]
"""Callback. True: this process begins to compute its part of a step. False: it waits in the step
for other ranks of the gang."""


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
"""Step number that stands for no step."""


class UpdateFailed(SeamlessFlowError):
    """An update that must not be applied: a loss failed, or a gradient is not finite.

    A restart would compute the same. The state in memory then belongs to no run.
    """

    lasting = True

    def __init__(self, reason: str, chains: Sequence[int] = ()) -> None:
        self.reason = reason
        self.chains = tuple(chains)
        """Known chains that show the failure, by their number in the update."""
        super().__init__(reason)


@dataclass(frozen=True, slots=True)
class StepInput:
    """The input of one optimizer update; a step has one or several."""

    micro_batches: Sequence[MicroBatch]
    samples: Sequence[MicroBatch]
    """Tokens from earlier versions, to measure under the weights that sampled them."""

    version: int
    """Version whose weights are trained."""

    learning_rate: float


@dataclass(frozen=True, slots=True)
class Machine:
    """Hardware and software that tensors depend on, besides settings and data."""

    device: str
    """The accelerator's name, or the CPU instructions that torch uses."""
    threads: int
    """Torch's CPU threads."""
    torch: str
    """Torch's version."""


class DeviceMemory(Protocol):
    """The computing devices' memory. Calls may take seconds."""

    def acquire(self) -> None:
        """Move weights and optimizer to the devices."""

    def release(self) -> int:
        """Move both to the host. Return a lower bound on each device's free bytes."""


class Backend(Protocol):
    """The weights, the optimizer and their device."""

    @property
    def machine(self) -> Machine:
        """Return the hardware and software that compute."""

    @property
    def dtype(self) -> str:
        """Return the element type for published weights."""

    @property
    def layout(self) -> Layout:
        """Return the layout in the settings; for `auto`, one that all models can compute."""

    def annotate(
        self, batches: Sequence[MicroBatch], columns: Sequence[Column]
    ) -> AnnotatedColumns:
        """Return columns under the present weights; each has N numbers for a micro-batch.

        This is a step's first phase. `train` follows, once for each update.
        """

    def train(self, step: StepInput) -> Mapping[str, float]:
        """Make one optimizer update; return its metrics (names in `trainer/metrics/names.py`).

        Without a trained token the weights stay as they are. Raise `UpdateFailed`, on all ranks.
        """

    def remember(self, version: int) -> None:
        """Keep a copy of the present weights as `version`, to compare engines with.

        Called once after each step, so that the back end knows when to renew the reference.
        """

    def remembered(self) -> Sequence[int]:
        """Return the versions that still have a copy."""

    def write_weights(self, directory: Path) -> None:
        """Write the model as safetensors, laid out as a Hugging Face directory.

        This, `snapshot`, `train` and `remember` are called between a step's start and `rest`.
        """

    def snapshot(self) -> None:
        """Copy weights, optimizer and random state to the host, for `save`.

        Each rank copies its part.
        """

    def save(self, directory: Path) -> None:
        """Write the oldest unwritten snapshot to a checkpoint's directory.

        Other calls may overlap this one: a checkpoint is written while the devices do other work.
        """

    def load(self, directory: Path | None, version: int) -> None:
        """Load the checkpoint of `version` from `directory`; None keeps the initial model.

        Called once, before all other methods. Raise `ModelUnusable`.
        """

    def rest(self, step: int = NO_STEP) -> None:
        """Note that a step's calls are over; `NO_STEP`: they belonged to no step.

        Ranks return from `follow` here, so that their loops can give up the device.
        """


class LocalBackend(Backend, DeviceMemory, Protocol):
    """A back end in this process."""

    def follow(self) -> int:
        """Take part in the first rank's calls until it rests. For the other ranks.

        Return the step that is over, or `NO_STEP`.
        """

    def interrupt(self) -> None:
        """End a running wait with an error, because the process ends. Any thread may call it.

        A gang's other ranks first finish their part of a checkpoint.
        """
