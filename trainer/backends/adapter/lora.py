"""An adapter in a model: its layers (peft's), how it begins, and its file. The base is frozen.

All other parts go by what requires a gradient: so only an adapter has gradients, moments, copies of
older versions and a place in checkpoints. Called by the back ends.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import torch
from peft import LoraConfig, inject_adapter_in_model
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, distribute_tensor
from transformers import PreTrainedModel

from infra.weights.adapter import CONFIG, TENSORS, tensor_name
from trainer.adapter import AdapterSection
from trainer.backends.backend import ModelUnusable
from trainer.backends.model import DTYPES
from trainer.backends.shards import is_empty
from trainer.settings import Dtype

_NAME = "default"
_A, _B = f".lora_A.{_NAME}.weight", f".lora_B.{_NAME}.weight"


def inject(model: PreTrainedModel, directory: Path, settings: AdapterSection, dtype: Dtype) -> None:
    """Freeze a model and give its layers an adapter, kept as `dtype`, to be set by `begin`.

    Raise `ModelUnusable` for a layer that `directory`'s model does not have.
    """
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    config = _config(settings, _targets(model, directory, settings))
    inject_adapter_in_model(config, model, _NAME, low_cpu_mem_usage=is_empty(model))
    for parameter in trained(model).values():
        parameter.data = parameter.data.to(DTYPES[dtype])
    nn.Module.eval(model)


@torch.no_grad()
def begin(model: PreTrainedModel, seed: int) -> None:
    """Set an adapter to its beginning, the same on all ranks: it adds nothing to the model.

    A is uniform as in https://arxiv.org/abs/2106.09685's own code, B is 0. A model without an
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
    return {name: one for name, one in model.named_parameters() if one.requires_grad}


def published(model: nn.Module) -> Mapping[str, Tensor]:
    """Return the tensors to publish: those of the adapter by peft's names, else the whole model."""
    if not _has_adapter(model):
        return model.state_dict()
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
    """Write an adapter as `dtype`, as peft would."""
    typed = {name: tensor.to("cpu", DTYPES[dtype]).contiguous() for name, tensor in weights.items()}
    save_file(typed, directory / TENSORS, {"format": "pt"})
    names = {name.split(".lora_")[0].rpartition(".")[2] for name in weights}
    config = _config(settings, sorted(names))
    config.base_model_name_or_path = str(base.resolve())
    config.save_pretrained(str(directory))
    _sort_members(directory / CONFIG)


def _config(settings: AdapterSection, targets: list[str]) -> LoraConfig:
    return LoraConfig(
        r=settings.rank,
        lora_alpha=settings.chosen_alpha,
        target_modules=targets,
        lora_dropout=0.0,
        task_type="CAUSAL_LM",
    )


def _has_adapter(model: nn.Module) -> bool:
    return hasattr(model, "peft_config")


def _place(name: str) -> tuple[str, Literal["A", "B"]]:
    """Return layer and half of a parameter of an adapter."""
    return (name.removesuffix(_A), "A") if name.endswith(_A) else (name.removesuffix(_B), "B")


def _targets(model: PreTrainedModel, directory: Path, settings: AdapterSection) -> list[str]:
    """Return the last names of the layers that get an adapter. Raise `ModelUnusable`."""
    output = model.get_output_embeddings()  # type: ignore[no-untyped-call]
    linear = {
        name.rpartition(".")[2]
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear) and module is not output
    }
    if unknown := [name for name in settings.targets if name not in linear]:
        raise ModelUnusable(
            str(directory),
            f"has no layer {unknown[0]} for trainer.adapter.targets, only "
            f"{', '.join(sorted(linear))}",
        )
    return sorted(settings.targets or linear)


def _put(whole: Tensor, parameter: nn.Parameter) -> None:
    """Set a parameter, or this rank's shard of it."""
    if isinstance(parameter, DTensor):
        own = distribute_tensor(
            whole.to(parameter.device, parameter.dtype),
            parameter.device_mesh,
            parameter.placements,
            src_data_rank=None,
        )
        parameter.copy_(own)
    else:
        parameter.copy_(whole)


def _sort_members(path: Path) -> None:
    """Write a JSON file with sorted lists: peft writes sets in any order."""
    values = json.loads(path.read_bytes())
    ordered = {
        name: sorted(value) if isinstance(value, list) else value for name, value in values.items()
    }
    path.write_text(json.dumps(ordered, indent=2, sort_keys=True), encoding="utf-8")
