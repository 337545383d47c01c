"""Stand-ins for trained weights: small files that pass through publication as real ones do. Pure
but for reading the model.

The model's own weights if they are one small file, else a single small tensor. The first byte of
the first tensor counts the optimizer steps, modulo 256, so that each version has other bytes; of a
small model this is the lowest byte of one value, and an engine can still load it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from seamlessflow.trainer.backends.backend import ModelUnusable

WEIGHTS = "model.safetensors"
MOST_BYTES = 16 * 1024 * 1024
"""A larger file of weights is not copied into each version."""
_LENGTH_BYTES = 8
_TYPES: Mapping[str, str] = {"F32": "float32", "BF16": "bfloat16", "F16": "float16"}


@dataclass(frozen=True, slots=True)
class StandIn:
    """The weights of a model that is not trained."""

    initial: bytes
    """A safetensors file."""
    dtype: str
    """Element type of its first tensor."""

    def after(self, steps: int) -> bytes:
        """Return the file after so many optimizer steps."""
        length = int.from_bytes(self.initial[:_LENGTH_BYTES], "little")
        changed, first = bytearray(self.initial), _LENGTH_BYTES + length
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
    """Return the element type of a file's first tensor, empty if it has none."""
    try:
        with safe_open(path, "np") as file:
            types = [file.get_slice(name).get_dtype() for name in file.offset_keys()[:1]]
    except (OSError, SafetensorError) as error:
        raise ModelUnusable(str(path), f"cannot be read: {error}") from error
    return _TYPES.get(types[0], types[0].lower()) if types else ""
