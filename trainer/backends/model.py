"""Loading and writing Hugging Face models, safetensors only. No other module loads models.

Computations keep copies of weights. These are stale once the weights are replaced in place, so
`forget_copies` is called before.
"""

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import torch
from safetensors import SafetensorError
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from transformers import (
    AutoModelForCausalLM,
    AutoModelForTokenClassification,
    PreTrainedModel,
)
from transformers.utils import logging as transformers_logging

from seamlessflow.infra.disk import open_to_readers
from seamlessflow.trainer.backends.backend import ModelUnusable
from seamlessflow.trainer.backends.sharded.shards import empty_model, new_outputs
from seamlessflow.trainer.parallelism import Dtype

_log = logging.getLogger(__name__)

DTYPES: Mapping[Dtype, torch.dtype] = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}


def load_model(directory: Path, dtype: Dtype, empty: bool = False) -> PreTrainedModel:
    """Return a directory's causal model, on the host, ready for gradients, without dropout.

    With `empty` the parameters have no memory until `shards.fill`, once the model is sharded. A
    model whose files hold other tensors than its own is loaded whole even so. Raise
    `ModelUnusable`.
    """
    return _loaded(AutoModelForCausalLM, directory, dtype, empty)


def load_critic(
    directory: Path, dtype: Dtype, empty: bool = False, outputs: int = 1
) -> PreTrainedModel:
    """Return a directory's model with `outputs` values a token instead of logits, all 0 at first.

    `empty` as for `load_model`. Raise `ModelUnusable`.
    """
    verbosity = transformers_logging.get_verbosity()
    # transformers would report that the output is new, and advise to train it.
    transformers_logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    try:
        model = _loaded(
            AutoModelForTokenClassification, directory, dtype, empty, num_labels=outputs
        )
    finally:
        transformers_logging.set_verbosity(verbosity)
    for module in new_outputs(model):
        for parameter in module.parameters():
            nn.init.zeros_(parameter)
        # FSDP2 hooks into the output, and warns if it is a view into another tensor.
        module.register_forward_hook(lambda _, __, output: output.clone())
    return model


def _loaded(
    kind: Any, directory: Path, dtype: Dtype, empty: bool, **more: object
) -> PreTrainedModel:
    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    if not directory.is_dir():
        raise ModelUnusable(str(directory), "is not a directory")
    try:
        model = empty_model(kind, directory, DTYPES[dtype], **more) if empty else None
        if model is None:
            if empty:
                _log.warning(
                    "%s: each rank loads all of it, its files need a conversion", directory
                )
            model = kind.from_pretrained(
                directory, dtype=DTYPES[dtype], local_files_only=True, use_safetensors=True, **more
            )
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        raise ModelUnusable(str(directory), f"cannot be loaded: {error}") from error
    nn.Module.eval(model)
    return cast(PreTrainedModel, model)


def write_model(
    model: PreTrainedModel, weights: Mapping[str, Tensor], dtype: Dtype, directory: Path
) -> None:
    """Write `weights` (a state dict of `model`) as `dtype`, with the model's configuration."""
    typed = {name: tensor.to("cpu", DTYPES[dtype]) for name, tensor in weights.items()}
    model.save_pretrained(directory, state_dict=typed)
    for path in directory.glob("*.safetensors"):
        open_to_readers(path)
    _set_type(directory, dtype)


def write_configuration(model: PreTrainedModel, dtype: Dtype, directory: Path) -> None:
    """Write the same files as `write_model` except weights; delete no weights."""
    name = type(model).__name__.removeprefix("FSDP")
    model.config.architectures = [name]
    model.config.save_pretrained(directory)
    if model.can_generate() and model.generation_config is not None:
        model.generation_config.save_pretrained(directory)
    _set_type(directory, dtype)


def _set_type(directory: Path, dtype: Dtype) -> None:
    path = directory / "config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps(config | {"dtype": dtype}, indent=2), encoding="utf-8")


def recompute_activations(model: PreTrainedModel) -> None:
    """Recompute activations in the backward pass instead of keeping them; dropout stays off."""
    model.activation_checkpointing_enable()
    # transformers recomputes in training mode only, and that mode also switches dropout on.
    model.train()
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        if hasattr(module, "attention_dropout"):
            setattr(module, "attention_dropout", 0.0)  # noqa: B010 (mypy: Tensor | Module)


def forget_copies(model: nn.Module) -> None:
    """Forget what computations have kept of a model's weights, before these are replaced.

    Autocast keeps the weights in its own type as long as its outermost context is open. FSDP2 keeps
    the root module's weights whole after a forward pass. This puts sharded parameters back in their
    place, so that writes go to the shards.
    """
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.reshard()
    torch.clear_autocast_cache()
