"""Weights, AdamW's moments and random state as safetensors: what a checkpoint needs to go on
exactly.

Names in `optimizer.safetensors` are `<moment>/<parameter>`. Called by the back ends.
"""

from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.optim import Optimizer
from transformers import PreTrainedModel

from trainer.backend import ModelUnusable

WEIGHTS = "weights.safetensors"
OPTIMIZER = "optimizer.safetensors"
RANDOM = "random.safetensors"


def save_state(directory: Path, model: PreTrainedModel, optimizer: Optimizer) -> None:
    """Writes the three files."""
    parameters = dict(model.named_parameters())
    save_file({name: _flat(tensor) for name, tensor in parameters.items()}, directory / WEIGHTS)
    moments = {
        f"{moment}/{name}": _flat(value)
        for name, parameter in parameters.items()
        for moment, value in optimizer.state.get(parameter, {}).items()
    }
    save_file(moments, directory / OPTIMIZER)
    random = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        random["cuda"] = torch.cuda.get_rng_state()
    save_file(random, directory / RANDOM)


def load_state(directory: Path, model: PreTrainedModel, optimizer: Optimizer) -> None:
    """Puts model, optimizer and random state back. Raises `ModelUnusable`."""
    try:
        weights, moments, random = (
            load_file(directory / name) for name in (WEIGHTS, OPTIMIZER, RANDOM)
        )
    except (OSError, SafetensorError) as error:
        raise ModelUnusable(str(directory), f"cannot be read: {error}") from error
    parameters = dict(model.named_parameters())
    if weights.keys() != parameters.keys():
        names = sorted(weights.keys() ^ parameters.keys())
        raise ModelUnusable(str(directory), f"is of another model: {', '.join(names[:3])}")
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(weights[name])
    optimizer.state.clear()
    for key, value in moments.items():
        moment, _, name = key.partition("/")
        parameter = parameters[name]
        optimizer.state[parameter][moment] = value if moment == "step" else value.to(parameter)
    torch.set_rng_state(random["cpu"])
    if "cuda" in random and torch.cuda.is_available():
        torch.cuda.set_rng_state(random["cuda"])


def move_state(optimizer: Optimizer, device: torch.device) -> None:
    """Moves the moments; the step counts stay where the optimizer wants them."""
    for state in optimizer.state.values():
        for moment, value in state.items():
            if moment != "step":
                state[moment] = value.to(device)


def _flat(tensor: Tensor) -> Tensor:
    return tensor.detach().cpu().contiguous()
