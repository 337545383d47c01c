"""The back end for modelled devices: it computes nothing, but takes as long as they would.

For rehearsals, in which all else is real: calls, publication, checkpoints, recovery. One process
stands for all its worker's devices. Imports no torch.

Weights are stand-ins: small files that are published like real weights. They are the model's own
weights if these are one small file, else a single small tensor. The first tensor's first byte grows
by 1 with each optimizer step, modulo 256, so each version has other bytes. In a small model it is
one value's lowest byte, so an engine can still load the file.
"""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import load_file, save, save_file

from seamlessflow.infra.clock import Stopping, never
from seamlessflow.infra.device_model.presets import hardware_named
from seamlessflow.infra.device_model.rates import GangMember, gang_step
from seamlessflow.infra.device_model.settings import worker_rates
from seamlessflow.infra.errors import SeamlessFlowError
from seamlessflow.infra.network.line import Line
from seamlessflow.trainer.backends.backend import (
    NO_STEP,
    Computing,
    Machine,
    ModelUnusable,
    StepInput,
    unmeasured,
)
from seamlessflow.trainer.backends.meeting import Meeting, begun
from seamlessflow.trainer.data.chains import OF_POLICY, AnnotatedColumns, Column
from seamlessflow.trainer.data.credit.values import EVERY_OUTPUT, value_columns
from seamlessflow.trainer.data.packing import Layout, MicroBatch
from seamlessflow.trainer.settings import TrainerSettings

WEIGHTS = "model.safetensors"
MOST_BYTES = 16 * 1024 * 1024
"""A larger file of weights is not copied into each version."""
STATE = "clock.safetensors"
_STEPS = "steps"
_ME = "me"
"""This worker's name in its own part of a step."""
_LENGTH_BYTES = 8
_MODELS: Mapping[Column, str] = {
    **dict.fromkeys(OF_POLICY, "policy"),
    **dict.fromkeys(value_columns(EVERY_OUTPUT), "critic"),
}
"""Models with several columns, by column; any other column has its own model."""
_TYPES: Mapping[str, str] = {"F32": "float32", "BF16": "bfloat16", "F16": "float16"}


class ClockInterrupted(SeamlessFlowError):
    """Modelled work that was cut short because the process ends."""

    lasting = False

    def __init__(self) -> None:
        super().__init__("the process ends; what its modelled devices did is lost")


class ClockBackend:
    """A `Backend` (see `trainer/backends/backend.py`) whose devices are modelled."""

    def __init__(
        self,
        settings: TrainerSettings,
        way: Meeting | Line,
        computing: Computing = unmeasured,
        stopping: Stopping = never,
    ) -> None:
        """Wait for the other workers: rank 0's at the meeting, the others on their line to rank 0.

        Raises `ModelUnusable`, `ModelTooLarge`, `WorkersAbsent` and `LineLost`, the last two at
        once when `stopping`.
        """
        trainer = settings.trainer
        self._model = settings.device_model
        self._computing = computing
        self._own = max(1, len(trainer.devices))
        self._devices = trainer.ranks
        self._layout = trainer.layout
        self._rates = worker_rates(self._model, self._own, gang=self._devices)
        self._member = GangMember(self._rates, self._own)
        self._weights = stand_in(settings.policy.model)
        self._steps = 0
        """Optimizer steps that made the weights."""
        self._snapshot = 0
        self._on_devices = False
        self._ended = threading.Event()
        self._first: Line | None = None
        self._others: Sequence[Line] = ()
        if isinstance(way, Meeting):
            self._others = way.begin(trainer.ranks - self._own)
        else:
            begun(way, stopping)
            self._first = way

    @property
    def dtype(self) -> str:
        return self._weights.dtype

    @property
    def layout(self) -> Layout:
        """Return `padded` for `auto`: modelled devices share no tokens."""
        return "padded" if self._layout == "auto" else self._layout

    @property
    def machine(self) -> Machine:
        return Machine(f"clock of {self._own} {self._model.hardware}", 0, "")

    def annotate(
        self, batches: Sequence[MicroBatch], columns: Sequence[Column]
    ) -> AnnotatedColumns:
        """Return zeros, after a forward pass through each model that has columns."""
        self._slowest(batches, len({_MODELS.get(name, name) for name in columns}))
        return {name: [np.zeros(len(batch), np.float32) for batch in batches] for name in columns}

    def train(self, step: StepInput) -> dict[str, float]:
        slowest_s = self._slowest(step.micro_batches)
        if any(map(len, step.micro_batches)):
            self._steps += 1
        return {"learning_rate": step.learning_rate, "modelled_s": slowest_s}

    def remember(self, version: int) -> None:
        """Keep nothing: there are no log-probs to measure."""

    def remembered(self) -> Sequence[int]:
        return ()

    def write_weights(self, directory: Path) -> None:
        self._pass(self._model.publish_s)
        (directory / WEIGHTS).write_bytes(self._weights.after(self._steps))

    def snapshot(self) -> None:
        self._snapshot = self._steps

    def save(self, directory: Path) -> None:
        save_file({_STEPS: np.array([self._snapshot], np.int64)}, directory / STATE)

    def load(self, directory: Path | None, version: int) -> None:
        if directory is None:
            return
        try:
            self._steps = int(load_file(directory / STATE)[_STEPS][0])
        except (OSError, SafetensorError, LookupError) as error:
            raise ModelUnusable(str(directory), f"has no state of a clock: {error}") from error

    def rest(self, step: int = NO_STEP) -> None:
        for line in self._others:
            line.send(step)

    def follow(self) -> int:
        while self._first is not None and not isinstance(work := self._first.receive(), int):
            self._first.send(self._compute(*work))
        return NO_STEP if self._first is None else int(work)

    def interrupt(self) -> None:
        self._ended.set()
        for line in (*self._others, *([self._first] if self._first else ())):
            line.close()

    def acquire(self) -> None:
        if not self._on_devices:
            self._pass(self._rates.take_s)
        self._on_devices = True

    def release(self) -> int:
        if self._on_devices:
            self._pass(self._rates.leave_s)
        self._on_devices = False
        return int(hardware_named(self._model.hardware).memory_bytes)

    def _slowest(self, batches: Sequence[MicroBatch], passes: int = 0) -> float:
        """Let all workers compute their parts; return the slowest worker's seconds."""
        lengths = [tokens for batch in batches for tokens in batch.lengths_C.tolist()]
        for line in self._others:
            line.send([lengths, passes])
        own_s = self._compute(lengths, passes)
        return max([own_s, *(float(line.receive()) for line in self._others)])

    def _compute(self, lengths: Sequence[int], passes: int) -> float:
        """Wait as long as this worker's part of a step takes; return that time without the scale.

        If `passes` is not 0, wait for so many forward passes instead.
        """
        # Passes for columns are no separate step: they have no fixed part.
        fixed_s = 0.0 if passes else self._model.step_s
        seconds = gang_step({_ME: self._member}, self._devices, lengths, fixed_s).slowest_s
        # A forward pass is a third of the work for forward and backward together.
        seconds = seconds * passes / 3 if passes else seconds
        self._computing(True)
        self._pass(seconds)
        self._computing(False)
        return seconds

    def _pass(self, seconds: float) -> None:
        """Wait while the devices work. Raise `ClockInterrupted`."""
        if self._ended.wait(seconds * self._model.scale):
            raise ClockInterrupted


@dataclass(frozen=True, slots=True)
class StandIn:
    """Weights that stand in for those of a trained model."""

    initial: bytes
    """A safetensors file."""
    dtype: str
    """Its first tensor's element type."""

    def after(self, steps: int) -> bytes:
        """Return the file after so many optimizer steps."""
        length = int.from_bytes(self.initial[:_LENGTH_BYTES], "little")
        changed = bytearray(self.initial)
        first = _LENGTH_BYTES + length
        if first < len(changed):
            changed[first] = (changed[first] + steps) % 256
        return bytes(changed)


def stand_in(model: Path) -> StandIn:
    """Return the stand-in for the weights in a model's directory. Raise `ModelUnusable`."""
    if not model.is_dir():
        raise ModelUnusable(str(model), "is not a directory")
    path = model / WEIGHTS
    if path.is_file() and path.stat().st_size <= MOST_BYTES and (dtype := _dtype(path)):
        return StandIn(path.read_bytes(), dtype)
    return StandIn(save({"stand_in": np.zeros(1, np.int64)}), "int64")


def _dtype(path: Path) -> str:
    """Return the element type in a file's first tensor, empty if it has none."""
    try:
        with safe_open(path, "np") as file:
            types = [file.get_slice(name).get_dtype() for name in file.offset_keys()[:1]]
    except (OSError, SafetensorError) as error:
        raise ModelUnusable(str(path), f"cannot be read: {error}") from error
    return _TYPES.get(types[0], types[0].lower()) if types else ""
