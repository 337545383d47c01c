"""Models built without weights, whose shards are then read straight from the safetensors files.

So no rank ever holds a whole model: its peak is its shards and one tensor slice. Called by
`model.py` (empty models) and the back ends that shard (their weights).
"""

import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn
from transformers import AutoConfig, GenerationConfig, PreTrainedModel

from seamlessflow.trainer.backends.backend import ModelUnusable
from seamlessflow.trainer.backends.sharded.parts import TensorPart, part_of, read_part

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"


def empty_model(
    kind: Any, directory: Path, dtype: torch.dtype, **more: object
) -> PreTrainedModel | None:
    """Return a directory's model, with parameters on the meta device and correct buffers.

    None if its files have tensors with other names or shapes: its conversion needs the whole model.
    Raise OSError or ValueError for a directory without a model.
    """
    config = AutoConfig.from_pretrained(  # nosec B615 # a local directory
        directory, local_files_only=True, **more
    )
    if getattr(config, "quantization_config", None) is not None:
        return None
    with torch.device("meta"):
        model: PreTrainedModel = kind.from_config(config, dtype=dtype)
    # Some modules stay in float32 whatever was asked for: only loading knows which.
    kept = model._keep_in_fp32_modules or model._keep_in_fp32_modules_strict
    if (kept and dtype != torch.float32) or not _with_buffers(model):
        return None
    if not _covered(model, directory):
        return None
    if (directory / "generation_config.json").is_file():
        model.generation_config = GenerationConfig.from_pretrained(  # nosec B615 # a local directory
            directory, local_files_only=True
        )
    return model


def is_empty(model: nn.Module) -> bool:
    """Return whether a model's parameters have no memory yet."""
    return any(parameter.is_meta for parameter in model.parameters())


def fill(model: PreTrainedModel, directory: Path, device: torch.device) -> None:
    """Give an empty model, sharded or not, its memory on a device, and read its parts into it.

    Tensors that the files lack (a critic's output) are 0. Raise `ModelUnusable`.
    """
    model._apply(lambda tensor: _zeros(tensor, device))  # type: ignore[no-untyped-call]
    model.tie_weights()
    read = reader(model, directory)
    for (name, *_), tensor in _tensors(model):
        read(name, part_of(tensor))


def reader(model: PreTrainedModel, directory: Path) -> Callable[[str, TensorPart], None]:
    """Return a function that reads a part of a model's tensor into the part's memory.

    The model may be empty. The function takes any of the tensor's names. Tensors that the files
    lack (a critic's output) stay as they are. Both raise `ModelUnusable`.
    """
    with _loadable(directory):
        files = _files(directory)
    saved = {
        name: next((alias for alias in names if alias in files), None)
        for names, _ in _tensors(model)
        for name in names
    }

    def read(name: str, part: TensorPart) -> None:
        if (alias := saved[name]) is not None:
            # Opened for each tensor: what is read from a mapped file counts as memory until then.
            with _loadable(directory), safe_open(files[alias], framework="pt") as opened:
                read_part(opened, alias, part)

    return read


@contextmanager
def _loadable(directory: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError, SafetensorError) as error:
        raise ModelUnusable(str(directory), f"cannot be loaded: {error}") from error


def _zeros(tensor: Tensor, device: torch.device) -> Tensor:
    return torch.zeros_like(tensor, device=device) if tensor.is_meta else tensor


def _with_buffers(model: PreTrainedModel) -> bool:
    """Compute the buffers that no file holds, on the host; return whether all are known."""
    saved = model.state_dict().keys()
    for prefix, module in model.named_modules():
        names = [name for name, _ in module.named_buffers(recurse=False)]
        for name in names:
            buffer = module._buffers[name]
            if buffer is None or not buffer.is_meta:
                continue
            on_host = torch.empty_like(buffer, device="cpu")
            module._buffers[name] = (
                on_host.fill_(torch.nan) if on_host.is_floating_point() else on_host
            )
        if any(f"{prefix}.{name}".lstrip(".") not in saved for name in names):
            # Its parameters have no memory, so this writes only into the buffers.
            model._init_weights(module)  # type: ignore[no-untyped-call]
            if any(
                not tensor.is_floating_point() or not torch.isfinite(tensor).all()
                for tensor in module.buffers(recurse=False)
            ):
                return False
    return True


def _covered(model: PreTrainedModel, directory: Path) -> bool:
    """Return whether the files hold each tensor that a model saves, in its shape."""
    files = _files(directory)
    for names, tensor in _tensors(model):
        held = [name for name in names if name in files]
        if not held and not _is_new_output(model, names[0]):
            return False
        for name in held:
            with safe_open(files[name], framework="pt") as opened:
                if list(tensor.shape) != opened.get_slice(name).get_shape():
                    return False
    return True


def new_outputs(model: PreTrainedModel) -> set[nn.Module]:
    """Return a critic's output layers, which begin with zeros; a causal model has none."""
    others = {*model.base_model.modules(), model.get_output_embeddings()}  # type: ignore[no-untyped-call]
    layers = (module for module in model.modules() if isinstance(module, nn.Linear))
    return {layer for layer in layers if layer not in others}


def _is_new_output(model: PreTrainedModel, name: str) -> bool:
    """Return whether a parameter belongs to a critic's output."""
    return model.get_submodule(name.rpartition(".")[0]) in new_outputs(model)


def _tensors(model: nn.Module) -> list[tuple[list[str], Tensor]]:
    """Return each tensor that a model saves, once, with all its names: tied ones have several."""
    names: defaultdict[int, list[str]] = defaultdict(list)
    tensors = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        # An adapter's layer contains the layer that it adapts.
        names[id(tensor)].append(name.replace(".base_layer.", "."))
        tensors[id(tensor)] = tensor
    return [(names[key], tensor) for key, tensor in tensors.items()]


def _files(directory: Path) -> Mapping[str, Path]:
    """Return the file that holds each tensor in a directory, by tensor name. Raise ValueError."""
    index = directory / INDEX
    if not index.is_file():
        with safe_open(directory / SINGLE, framework="pt") as opened:
            return dict.fromkeys(opened.keys(), directory / SINGLE)
    named = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
    if outside := next((file for file in named.values() if Path(file).name != file), None):
        raise ValueError(f"{INDEX} names {outside}, which is not a file beside it")
    return {name: directory / file for name, file in named.items()}
