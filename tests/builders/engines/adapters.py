"""Adapters with random values in both halves, as versions of a policy."""

from pathlib import Path

import torch
from peft import LoraConfig
from safetensors.torch import load_file, save_file

from seamlessflow.infra.weights.adapter import TENSORS, BaseModel, tensor_name
from seamlessflow.infra.weights.manifest import Manifest, write_manifest


def adapter(
    base: Path, directory: Path, seed: int = 0, version: int = 0, rank: int = 4, size: float = 0.3
) -> Path:
    """Write an adapter of the projections of all queries and of all last layers; return it."""
    torch.manual_seed(seed)
    targets = ["q_proj", "down_proj"]
    tensors: dict[str, torch.Tensor] = {}
    for name, weight in load_file(base / "model.safetensors").items():
        layer = name.removesuffix(".weight")
        if layer.rpartition(".")[2] in targets:
            tensors[tensor_name(layer, "A")] = torch.randn(rank, weight.shape[1]) * size
            tensors[tensor_name(layer, "B")] = torch.randn(weight.shape[0], rank) * size
    directory.mkdir(parents=True)
    save_file(tensors, directory / TENSORS)
    LoraConfig(
        r=rank, lora_alpha=2 * rank, target_modules=targets, task_type="CAUSAL_LM"
    ).save_pretrained(str(directory))
    base_model = BaseModel.from_directory(base)
    manifest = Manifest(
        policy="tiny",
        version=version,
        optimizer_step=version,
        lineage="a",
        dtype="float32",
        kind="adapter",
        base_model=base_model.directory,
        base_hash=base_model.hash,
    )
    write_manifest(directory, manifest)
    return directory
