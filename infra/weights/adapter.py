"""Adapter directories in peft's format: two files, to which a base model belongs.

The trainer writes them, engines and merging read them. A base model is a Hugging Face directory
that never changes. The manifest beside an adapter names it, with the hash of its tensors. Imports
no torch.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

from seamlessflow.infra.errors import SeamlessFlowError
from seamlessflow.infra.weights.tensors import tensors_hash

TENSORS = "adapter_model.safetensors"
CONFIG = "adapter_config.json"
Shapes = Mapping[str, Sequence[int]]
"""Tensor shapes, by tensor name."""

_PREFIX = "base_model.model."
_UNSUPPORTED = {
    "use_dora": False,
    "use_rslora": False,
    "bias": "none",
    "rank_pattern": {},
    "alpha_pattern": {},
    "modules_to_save": None,
    "fan_in_fan_out": False,
}
"""Configuration members that change what an adapter computes, with values that change nothing."""


class AdapterInvalid(SeamlessFlowError):
    """An adapter that cannot be read, or whose base model is not the one that it was trained on."""

    def __init__(self, directory: str, reason: str) -> None:
        self.directory = directory
        self.reason = reason
        super().__init__(f"adapter in {directory}: {reason}")


@dataclass(frozen=True, slots=True)
class BaseModel:
    """The model that an adapter is trained on."""

    directory: str
    hash: str
    """Its `seamlessflow.infra.weights.tensors.tensors_hash`."""

    @classmethod
    def from_directory(cls, directory: Path) -> Self:
        """Return the model in a directory. Raise `AdapterInvalid`."""
        try:
            return cls(str(directory.resolve()), tensors_hash(directory))
        except (OSError, ValueError) as error:
            raise AdapterInvalid(str(directory), f"its base cannot be read: {error}") from error

    def verify(self, adapter: Path) -> None:
        """Raise `AdapterInvalid` for this adapter if the directory does not hold the model.

        Reads the whole model.
        """
        base = BaseModel.from_directory(Path(self.directory))
        if base.hash != self.hash:
            raise AdapterInvalid(
                str(adapter),
                f"its base {self.directory} has other tensors ({base.hash}) than it was trained "
                f"on ({self.hash})",
            )


@dataclass(frozen=True, slots=True)
class AdapterConfig:
    """An adapter's configuration."""

    rank: int
    alpha: float

    @property
    def scale(self) -> float:
        """Factor by which B @ A is multiplied before it is added to a layer."""
        return self.alpha / self.rank

    @classmethod
    def read(cls, directory: Path) -> Self:
        """Return the configuration in a directory. Raise `AdapterInvalid`."""
        try:
            values: Mapping[str, Any] = json.loads((directory / CONFIG).read_bytes())
            config = cls(int(values["r"]), float(values["lora_alpha"]))
            named = [name for name, none in _UNSUPPORTED.items() if values.get(name, none) != none]
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise AdapterInvalid(str(directory), f"{CONFIG}: {error!r}") from error
        if config.rank < 1 or values.get("peft_type", "LORA") != "LORA":
            raise AdapterInvalid(str(directory), f"{CONFIG} is of no LoRA adapter")
        if named:
            raise AdapterInvalid(str(directory), f"{', '.join(named)} cannot be used here")
        return config


def tensor_name(layer: str, half: Literal["A", "B"]) -> str:
    """Return the name that half a layer's adapter has in the file, as in peft."""
    return f"{_PREFIX}{layer}.lora_{half}.weight"


def layers(directory: Path, names: set[str]) -> list[str]:
    """Return the layers that have an adapter, sorted, from the names of its tensors.

    Raise `AdapterInvalid` for another kind of tensor, and for a half without the other.
    """
    adapted = sorted({name.removeprefix(_PREFIX).rpartition(".lora_")[0] for name in names})
    wanted = {name for layer in adapted for name in _halves(layer)}
    if wrong := sorted(names ^ wanted):
        raise AdapterInvalid(str(directory), f"{wrong[0]} is not half of a layer's adapter")
    if not adapted:
        raise AdapterInvalid(str(directory), "it has no tensor")
    return adapted


def fitting(directory: Path, adapter: Shapes, model: Shapes) -> AdapterConfig:
    """Return an adapter's configuration; `adapter` has its tensors' shapes.

    Raise `AdapterInvalid` if it does not fit the model whose tensors have the shapes in `model`.
    """
    config = AdapterConfig.read(directory)
    for layer in layers(directory, set(adapter)):
        shape = model.get(f"{layer}.weight")
        if shape is None or len(shape) != 2:
            raise AdapterInvalid(str(directory), f"the model has no layer {layer}")
        outputs, inputs = shape
        for name, wanted in zip(
            _halves(layer), ([config.rank, inputs], [outputs, config.rank]), strict=True
        ):
            if list(adapter[name]) != wanted:
                text = f"{name} has the shape {list(adapter[name])}, not {wanted}"
                raise AdapterInvalid(str(directory), text)
    return config


def _halves(layer: str) -> tuple[str, str]:
    return tensor_name(layer, "A"), tensor_name(layer, "B")
