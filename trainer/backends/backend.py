"""What the loop needs of whoever holds the weights: one device, or a gang of ranks.

Imports no torch, so that the loop and its tests need none. All calls come from one thread at a
time; `train`, `write_weights`, `save` and `load` take as long as they take.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from infra.errors import SeamlessFlowError
from trainer.data.packing import MicroBatch


class UnknownChoice(SeamlessFlowError):
    """A setting names something that is not registered."""

    def __init__(self, setting: str, name: str, known: Sequence[str]) -> None:
        self.setting = setting
        self.name = name
        self.known = tuple(known)
        super().__init__(f"{setting} cannot be {name!r}; there are {', '.join(sorted(known))}")

    def __reduce__(self) -> tuple[type["UnknownChoice"], tuple[str, str, tuple[str, ...]]]:
        return UnknownChoice, (self.setting, self.name, self.known)


class ModelUnusable(SeamlessFlowError):
    """A model or checkpoint cannot be trained on as asked."""

    def __init__(self, directory: str, reason: str) -> None:
        self.directory = directory
        self.reason = reason
        super().__init__(f"{directory}: {reason}")

    def __reduce__(self) -> tuple[type["ModelUnusable"], tuple[str, str]]:
        return ModelUnusable, (self.directory, self.reason)


@dataclass(frozen=True, slots=True)
class StepInput:
    """What one optimizer step computes with."""

    micro_batches: Sequence[MicroBatch]
    samples: Sequence[MicroBatch]
    """Tokens of earlier versions, to be measured under the weights that sampled them."""

    version: int
    """The weights that are trained."""

    learning_rate: float


class Backend(Protocol):
    """Weights, optimizer and device."""

    @property
    def dtype(self) -> str:
        """Element type of published weights."""

    def train(self, step: StepInput) -> Mapping[str, float]:
        """One optimizer step; returns its metrics (names in `trainer/metrics/names.py`).

        Without a trained token the weights stay as they are.
        """

    def remember(self, version: int) -> None:
        """The weights as they are now are this version; engines will sample from it."""

    def remembered(self) -> Sequence[int]:
        """Earlier versions that can still be measured against."""

    def write_weights(self, directory: Path) -> None:
        """Writes the model as safetensors, in the form Hugging Face directories have.

        This, `save`, `train` and `remember` come between a step's start and `rest`.
        """

    def save(self, directory: Path) -> None:
        """Writes weights, optimizer and random state to a checkpoint."""

    def load(self, directory: Path | None, version: int) -> None:
        """Continues from a checkpoint, which is of `version`; None: from the initial model.

        Called once, before anything else. Raises `ModelUnusable`.
        """

    def rest(self) -> None:
        """Nothing more is asked until the device has been acquired, or a step has begun, again."""

    def acquire(self) -> None:
        """Takes the memory of the device."""

    def release(self) -> int:
        """Gives the memory of the device back; returns how many bytes of it are free."""
