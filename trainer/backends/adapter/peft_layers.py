"""An adapter's layers in a model, from peft. No other module imports that library."""

from pathlib import Path

from peft import LoraConfig, inject_adapter_in_model
from torch import nn
from transformers import PreTrainedModel

from seamlessflow.trainer.backends.adapter.lora import NAME, trained
from seamlessflow.trainer.backends.backend import ModelUnusable
from seamlessflow.trainer.backends.model import DTYPES
from seamlessflow.trainer.backends.sharded.shards import is_empty
from seamlessflow.trainer.parallelism import Dtype
from seamlessflow.trainer.policy import AdapterSection


def inject(model: PreTrainedModel, directory: Path, settings: AdapterSection, dtype: Dtype) -> None:
    """Freeze a model and give its layers an adapter, kept as `dtype`, to be set by `begin`.

    Raise `ModelUnusable` for a target layer that the model in `directory` does not have.
    """
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    config = LoraConfig(
        r=settings.rank,
        lora_alpha=settings.chosen_alpha,
        target_modules=_targets(model, directory, settings),
        lora_dropout=0.0,
        task_type="CAUSAL_LM",
    )
    inject_adapter_in_model(config, model, NAME, low_cpu_mem_usage=is_empty(model))
    for parameter in trained(model).values():
        parameter.data = parameter.data.to(DTYPES[dtype])
    nn.Module.eval(model)


def _targets(model: PreTrainedModel, directory: Path, settings: AdapterSection) -> list[str]:
    """Return the last name of each layer that gets an adapter. Raise `ModelUnusable`."""
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
    if not linear:
        reason = "has no linear layer for an adapter (trainer.adapter.rank) but its output"
        raise ModelUnusable(str(directory), reason)
    return sorted(settings.targets or linear)
