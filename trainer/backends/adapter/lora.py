"""An adapter in a model: its initial weights, its trained and published tensors, and its file.

Other parts look only at parameters that require a gradient. So only the adapter has gradients,
moments, copies of older versions and a place in checkpoints. Called by the back ends.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, distribute_tensor
from transformers import PreTrainedModel

from seamlessflow.infra.disk import open_to_readers
from seamlessflow.infra.weights.adapter import CONFIG, TENSORS, tensor_name
from seamlessflow.trainer.backends.model import DTYPES
from seamlessflow.trainer.parallelism import Dtype
from seamlessflow.trainer.policy import AdapterSection

NAME = "default"
"""Name that peft gives to a model's adapter."""
_A = f".lora_A.{NAME}.weight"
_B = f".lora_B.{NAME}.weight"


@torch.no_grad()
def begin(model: PreTrainedModel, seed: int) -> None:
    """Set an adapter to its initial weights, the same on all ranks; it then adds nothing.

    A is uniform, as in the code of https://arxiv.org/abs/2106.09685. B is 0. A model without an
    adapter stays as it is.
    """
    random = torch.Generator().manual_seed(seed)
    for name, parameter in trained(model).items():
        if name.endswith(_B):
            parameter.zero_()
        elif name.endswith(_A):
            whole = torch.empty(parameter.shape)
            nn.init.kaiming_uniform_(whole, a=5**0.5, generator=random)
            _put(whole, parameter)


def trained(model: nn.Module) -> dict[str, nn.Parameter]:
    """Return the parameters that are trained, by name."""
    return {
        name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad
    }


def adapter_tensors(model: nn.Module) -> Mapping[str, Tensor]:
    """Return an adapter's tensors, by peft's names."""
    return {
        tensor_name(*_place(name)): parameter.detach() for name, parameter in trained(model).items()
    }


def write_adapter(
    settings: AdapterSection,
    base: Path,
    weights: Mapping[str, Tensor],
    dtype: Dtype,
    directory: Path,
) -> None:
    """Write an adapter's files as peft does, with `dtype` elements."""
    typed = {name: tensor.to("cpu", DTYPES[dtype]).contiguous() for name, tensor in weights.items()}
    save_file(typed, directory / TENSORS, {"format": "pt"})
    open_to_readers(directory / TENSORS)
    names = {name.split(".lora_")[0].rpartition(".")[2] for name in weights}
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": str(base.resolve()),
        "r": settings.rank,
        "lora_alpha": settings.chosen_alpha,
        "lora_dropout": 0.0,
        "target_modules": sorted(names),
        "bias": "none",
        "inference_mode": True,
    }
    (directory / CONFIG).write_text(json.dumps(config, indent=2), encoding="utf-8")


def _place(name: str) -> tuple[str, Literal["A", "B"]]:
    """Return an adapter parameter's layer, and which half (A or B) it is."""
    return (name.removesuffix(_A), "A") if name.endswith(_A) else (name.removesuffix(_B), "B")


def _put(whole: Tensor, parameter: nn.Parameter) -> None:
    """Set a parameter, or this rank's shard of it."""
    if isinstance(parameter, DTensor):
        shard = distribute_tensor(
            whole.to(parameter.device, parameter.dtype),
            parameter.device_mesh,
            parameter.placements,
            src_data_rank=None,
        )
        parameter.copy_(shard)
    else:
        parameter.copy_(whole)
