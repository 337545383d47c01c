"""AdamW; weights, its moments and random state as safetensors: a checkpoint's part of the back end.

Training goes on from them exactly. Names in `optimizer.safetensors` are `<moment>/<parameter>`.
Called by the back ends.
"""

from collections.abc import Iterable, Mapping, Set
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor
from torch.nn import Parameter
from torch.optim import AdamW, Optimizer

from trainer.backends.backend import ModelUnusable
from trainer.backends.shards import read_part
from trainer.settings import OptimizerSection

WEIGHTS = "weights.safetensors"
OPTIMIZER = "optimizer.safetensors"
RANDOM = "random.safetensors"
CRITIC = "critic-"
"""Prefix of the files of a critic."""


Files = Mapping[str, Mapping[str, Tensor]]
"""Tensors on the host, by file and name."""


def adamw(parameters: Iterable[Parameter], settings: OptimizerSection, lr: float) -> Optimizer:
    """Return AdamW with these settings, but for the learning rate."""
    return AdamW(
        parameters,
        lr=lr,
        betas=(settings.beta1, settings.beta2),
        eps=settings.eps,
        weight_decay=settings.weight_decay,
    )


def gathered(model: nn.Module, optimizer: Optimizer, prefix: str = "") -> Files:
    """Return a copy of everything to save, on the host, by file. Every rank must call it: sharded
    tensors are gathered. `prefix` is that of the files.
    """
    parameters = _parameters(model)
    moments = {
        f"{moment}/{name}": _whole(value)
        for name, parameter in parameters.items()
        for moment, value in optimizer.state.get(parameter, {}).items()
    }
    weights = {name: _whole(tensor) for name, tensor in parameters.items()}
    return {f"{prefix}{WEIGHTS}": weights, f"{prefix}{OPTIMIZER}": moments}


def random_state() -> Files:
    """Return the state of all random numbers, by file."""
    random = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        random["cuda"] = torch.cuda.get_rng_state()
    return {RANDOM: random}


def save_state(directory: Path, files: Files) -> None:
    """Write what `gathered` returned."""
    for name, tensors in files.items():
        save_file(dict(tensors), directory / name)


def load_state(directory: Path, model: nn.Module, optimizer: Optimizer, prefix: str = "") -> None:
    """Put model and optimizer back; each rank reads only its shards, from files of whole tensors.

    Raise `ModelUnusable`.
    """
    what = "its critic" if prefix else "it"
    weights, moments = (directory / f"{prefix}{name}" for name in (WEIGHTS, OPTIMIZER))
    parameters = _parameters(model)
    try:
        with safe_open(weights, framework="pt") as opened:
            saved = set(opened.keys())
        with safe_open(moments, framework="pt") as opened:
            keys = opened.keys()
    except (OSError, SafetensorError) as error:
        raise ModelUnusable(str(directory), f"{what} cannot be read: {error}") from error
    _check_names(directory, saved, parameters.keys(), prefix)
    try:
        for name, parameter in parameters.items():
            _put(weights, name, parameter)
        optimizer.state.clear()
        for key in keys:
            moment, _, name = key.partition("/")
            parameter = parameters[name]
            # AdamW keeps the count of steps on the host, in float32.
            value = torch.zeros(()) if moment == "step" else torch.zeros_like(parameter)
            _put(moments, key, value)
            optimizer.state[parameter][moment] = value
    except (OSError, ValueError, SafetensorError) as error:
        raise ModelUnusable(str(directory), f"{what} cannot be read: {error}") from error


def read_state(
    directory: Path, names: Set[str], prefix: str = ""
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Return the weights and moments of a checkpoint of a model whose parameters have these names.

    Raise `ModelUnusable`.
    """
    weights, moments = (
        _file(directory, f"{prefix}{name}", "its critic" if prefix else "it")
        for name in (WEIGHTS, OPTIMIZER)
    )
    _check_names(directory, weights.keys(), names, prefix)
    return weights, moments


def _check_names(directory: Path, saved: Set[str], names: Set[str], prefix: str) -> None:
    if wrong := sorted(saved ^ names):
        remedy = "set trainer.critic.kind and .model as they were, or begin in another directory"
        whose = f"its critic is another one, {remedy}" if prefix else "is of another model"
        raise ModelUnusable(str(directory), f"{whose}: {', '.join(wrong[:3])}")


def load_random(directory: Path) -> None:
    """Put the state of all random numbers back. Raise `ModelUnusable`."""
    random = _file(directory, RANDOM, "it")
    torch.set_rng_state(random["cpu"])
    if "cuda" in random and torch.cuda.is_available():
        torch.cuda.set_rng_state(random["cuda"])


def _file(directory: Path, name: str, what: str) -> dict[str, Tensor]:
    try:
        return load_file(directory / name)
    except (OSError, SafetensorError) as error:
        raise ModelUnusable(str(directory), f"{what} cannot be read: {error}") from error


def full(tensor: Tensor) -> Tensor:
    """Return a sharded tensor as a whole (every rank must call it), any other as it is."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def move_state(optimizer: Optimizer, device: torch.device) -> None:
    """Move the moments to a device; the step counts stay on the host, where AdamW keeps them."""
    for state in optimizer.state.values():
        for moment, value in state.items():
            if moment != "step":
                state[moment] = value.to(device)


def _parameters(model: nn.Module) -> dict[str, Parameter]:
    """Return the parameters that the optimizer knows, by name."""
    # After a forward pass alone FSDP2 keeps whole ones in place of shards.
    if isinstance(model, FSDPModule):
        model.reshard()
    return {name: one for name, one in model.named_parameters() if one.requires_grad}


def _whole(tensor: Tensor) -> Tensor:
    whole = full(tensor.detach())
    # On the host it would be the tensor itself, which the next step changes.
    copied = whole.clone() if whole.device.type == "cpu" else whole.cpu()
    return copied.contiguous()


def _put(file: Path, name: str, tensor: Tensor) -> None:
    """Read a rank's part of a tensor; opened for each, so that no more stays in memory."""
    with safe_open(file, framework="pt") as opened:
        read_part(opened, name, tensor)
