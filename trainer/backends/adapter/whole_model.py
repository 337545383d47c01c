"""A base model and its adapter as one model: a Hugging Face directory of whole weights.

Called by the command line.
"""

import shutil
from collections.abc import Mapping
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from seamlessflow.infra.disk import open_to_readers, whole_directory
from seamlessflow.infra.weights.adapter import (
    TENSORS,
    AdapterConfig,
    AdapterInvalid,
    layers,
    tensor_name,
)


def merge(base: Path, adapter: Path, target: Path) -> None:
    """Write to `target` the model `base` with `adapter` in its weights, in the base's own types.

    Each weight is W + scale B A (https://arxiv.org/abs/2106.09685, section 4), computed in float32.
    Only one base file is in memory at a time. Raise `AdapterInvalid`.
    """
    scale = AdapterConfig.read(adapter).scale
    try:
        halves = load_file(adapter / TENSORS)
        left = set(layers(adapter, set(halves)))
        with whole_directory(target) as draft:
            for path in sorted(path for path in base.iterdir() if path.is_file()):
                if path.suffix == ".safetensors":
                    left -= _merge_file(path, halves, scale, draft / path.name)
                else:
                    shutil.copyfile(path, draft / path.name)
            if left:
                raise AdapterInvalid(str(adapter), f"{base} has no layer {min(left)}")
    except (OSError, SafetensorError, RuntimeError) as error:
        raise AdapterInvalid(str(adapter), f"cannot be merged into {base}: {error}") from error


def added(halves: Mapping[str, Tensor], layer: str, scale: float) -> Tensor:
    """Return what an adapter adds to a layer's weight, in float32."""
    a, b = (halves[tensor_name(layer, half)].float() for half in ("A", "B"))
    return scale * (b @ a)


def _merge_file(source: Path, halves: Mapping[str, Tensor], scale: float, target: Path) -> set[str]:
    """Write one base file with the adapter added to its tensors; return the changed layers."""
    tensors = load_file(source)
    changed = set()
    for name, tensor in tensors.items():
        layer = name.removesuffix(".weight")
        if name.endswith(".weight") and tensor_name(layer, "A") in halves:
            tensors[name] = (tensor.float() + added(halves, layer, scale)).to(tensor.dtype)
            changed.add(layer)
    with safe_open(source, "pt") as opened:
        save_file(tensors, target, opened.metadata())
    open_to_readers(target)
    return changed
