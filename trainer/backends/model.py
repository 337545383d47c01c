"""Hugging Face directories to models and back, safetensors only. No other file loads models."""

import json
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, PreTrainedModel
from transformers.utils import logging as transformers_logging

from trainer.backends.backend import ModelUnusable
from trainer.settings import Dtype

DTYPES: Mapping[Dtype, torch.dtype] = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}


def load_model(directory: Path, dtype: Dtype) -> PreTrainedModel:
    """The causal model of a directory on the host, ready for gradients, without dropout.

    Raises `ModelUnusable`.
    """
    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    if not directory.is_dir():
        raise ModelUnusable(str(directory), "is not a directory")
    try:
        model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(
            directory, dtype=DTYPES[dtype], local_files_only=True, use_safetensors=True
        )
    except (OSError, ValueError, KeyError) as error:
        raise ModelUnusable(str(directory), f"cannot be loaded: {error}") from error
    nn.Module.eval(model)
    return model


def write_model(
    model: PreTrainedModel, weights: Mapping[str, Tensor], dtype: Dtype, directory: Path
) -> None:
    """Writes `weights` (a state dict of `model`) as `dtype`, and the configuration that goes with
    it.
    """
    cast = {name: tensor.to("cpu", DTYPES[dtype]) for name, tensor in weights.items()}
    model.save_pretrained(directory, state_dict=cast)
    path = directory / "config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps(config | {"dtype": dtype}, indent=2), encoding="utf-8")


def keep_activations_out(model: PreTrainedModel) -> None:
    """Has activations computed again in the backward pass; keeps dropout off all the same."""
    model.activation_checkpointing_enable()
    model.train()
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        if hasattr(module, "attention_dropout"):
            setattr(module, "attention_dropout", 0.0)  # noqa: B010 (mypy: Tensor | Module)
