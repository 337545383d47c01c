"""Checks of model directories: for the policy, and for reference, teacher and critic.

They read `config.json`, so that faults show early. The torch engine refuses some models when it is
built; vLLM and the trainer refuse some divisions and adapters. Imports no torch.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from seamlessflow.checks import packages
from seamlessflow.config import RunConfig
from seamlessflow.each_policy import sections_path
from seamlessflow.infra.device_model.model_shape import (
    ModelShape,
    ShapeUnknown,
    read_config,
    read_shape,
)
from seamlessflow.infra.faults import Fault
from seamlessflow.infra.variables import SettingPath
from seamlessflow.inspection.model_directory import (
    foreign_tokenizer,
    incomplete,
    unrenderable,
)
from seamlessflow.producers.rollout.torch_engine.limits import unsupported
from seamlessflow.producers.rollout.vllm_engine.launch import LARGEST_RANK, most_rank
from seamlessflow.trainer.parallelism import unproven_model
from seamlessflow.trainer.settings import TrainerSection

_TOKENIZER = "tokenizer.json"


def torch_engine_faults(config: RunConfig, directory: Path) -> Iterator[Fault]:
    """Yield a fault for each model part that the torch engine, if it samples, cannot run."""
    if config.rollout.engine != "torch":
        return
    try:
        reason = unsupported(json.loads((directory / "config.json").read_bytes()))
    except (ValueError, AttributeError, TypeError) as error:
        yield Fault(("policy", "model"), f"{directory / 'config.json'} cannot be read: {error}")
        return
    if reason:
        text = f"torch cannot sample from {directory}, which {reason}; vllm may support it"
        yield Fault(("rollout", "engine"), text)


def vllm_engine_faults(config: RunConfig, directory: Path) -> Iterator[Fault]:
    """Yield a fault for each model part or adapter that vLLM, if it samples, cannot divide or load.

    A model whose configuration has other keys has no fault here: vLLM decides.
    """
    vllm = config.rollout.vllm
    rank = config.trainer.adapter.rank
    if config.rollout.engine != "vllm" or vllm.url is not None:
        return
    if rank > LARGEST_RANK:
        text = f"vLLM loads adapters of at most rank {LARGEST_RANK}, not {rank}"
        yield Fault((*sections_path(config), "trainer", "adapter", "rank"), text)
    workers = [worker for worker in config.workers if worker.policy in ("", config.run.policy)]
    counts = {worker.device_count: None for worker in workers if "rollout" in worker.tags}
    for ranks in {vllm.sharing(count): None for count in counts}:
        for name, number in _heads(directory).items():
            # If there are fewer key heads than ranks, each head is repeated on several ranks.
            repeated = name.startswith("num_key") and ranks % number == 0
            if number % ranks and not repeated:
                text = f"vLLM cannot divide the {name} of {directory}, {number}, over {ranks}"
                yield Fault(("rollout", "vllm", "tensor_parallel"), f"{text} devices")


def _heads(directory: Path) -> Mapping[str, int]:
    """Return the head counts in a model's configuration; empty if it lacks the usual keys."""
    try:
        values = read_config(directory)
        named = ("num_attention_heads", "num_key_value_heads")
        heads = {name: int(values[name]) for name in named if values.get(name)}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}
    return heads if min(heads.values(), default=0) > 0 else {}


def apart_on_vllm(policy: RunConfig, first: RunConfig) -> str:
    """Return why one vLLM server cannot serve a policy and the first one in turns; empty if it can.

    The weights with which the server starts decide what it can load.
    """
    adapter = policy.trainer.adapter
    other = first.trainer.adapter
    if first.rollout.engine != "vllm" or not (adapter.used or other.used):
        return ""
    if adapter.used != other.used or policy.policy.model.resolve() != first.policy.model.resolve():
        return "workers with vllm share adapters of one policy.model, or whole models: not both"
    if most_rank(adapter.rank) != most_rank(other.rank):
        return (
            "workers with vllm share adapters of like ranks: "
            f"{adapter.rank} and {other.rank} are not"
        )
    return ""


def trained_model_faults(config: RunConfig) -> Iterator[Fault]:
    """Yield the faults for which the trainer would refuse the policy's model once it is loaded.

    A model with unusual files or sizes has no fault here: the trainer decides.
    """
    model = config.policy.model
    try:
        reason = unproven_model(read_config(model)) if config.trainer.backend == "megatron" else ""
        shape = read_shape(model)
    except (ShapeUnknown, OSError, ValueError, TypeError, AttributeError):
        return
    if reason:
        text = f"megatron cannot train {model}: it {reason}; choose fsdp2"
        yield Fault((*sections_path(config), "trainer", "backend"), text)
    elif shape.layer is not None and config.trainer.backend != "clock":
        for setting, text in _unlike(config.trainer, shape):
            yield Fault((*sections_path(config), "trainer", *setting), text)


def _unlike(trainer: TrainerSection, shape: ModelShape) -> Iterator[tuple[SettingPath, str]]:
    """Yield trainer settings that do not fit a dense model's layers, and why."""
    ranks = trainer.megatron.tensor_parallel
    layer = shape.layer
    if trainer.backend == "megatron" and layer is not None:
        parts = {
            "num_attention_heads": layer.heads,
            "num_key_value_heads": layer.kv_heads,
            "intermediate_size": layer.intermediate,
        }
        for name, number in parts.items():
            if number % ranks:
                text = f"{ranks} does not divide the {name} of policy.model, {number}"
                yield ("megatron", "tensor_parallel"), text
    for text in trainer.adapter.unknown_targets(shape.widths):
        yield ("adapter", "targets"), text


def side_model_faults(config: RunConfig) -> Iterator[Fault]:
    """Yield what is wrong with the model directories that the policy's trainer names.

    A directory that the other settings leave unused is not checked.
    """
    above = sections_path(config)
    for setting, directory in _named(config.trainer):
        if reason := incomplete(directory, with_weights=config.trainer.backend != "clock"):
            yield Fault((*above, *setting), reason)
        elif _other_tokens(config.policy.model, directory):
            text = f"the {_TOKENIZER} of {directory} is not that of policy.model"
            remedy = "the policy's tokens mean others to it: name a model with the same tokenizer"
            yield Fault((*above, *setting), f"{text}, so {remedy}")


def _named(trainer: TrainerSection) -> Iterator[tuple[SettingPath, Path]]:
    if trainer.reference_used and trainer.reference is not None:
        yield ("trainer", "reference"), trainer.reference
    if trainer.advantage == "distill" and trainer.teacher is not None:
        yield ("trainer", "teacher"), trainer.teacher
    if trainer.critic_used and trainer.critic.model is not None:
        yield ("trainer", "critic", "model"), trainer.critic.model


def _other_tokens(policy: Path, directory: Path) -> bool:
    """Return whether a model's tokenizer is not the policy's; False if the policy has none."""
    tokenizer = policy / _TOKENIZER
    return tokenizer.is_file() and tokenizer.read_bytes() != (directory / _TOKENIZER).read_bytes()


def model_faults(setting: SettingPath, directory: Path, config: RunConfig) -> Iterator[Fault]:
    """Yield what is wrong with a model directory that engines load; `setting` names it."""
    if reason := incomplete(directory, with_weights=packages.computes(config)):
        yield Fault(setting, reason)
        return
    if reason := foreign_tokenizer(directory):
        yield Fault(setting, reason)
    yield from torch_engine_faults(config, directory)
    yield from vllm_engine_faults(config, directory)
    if reason := unrenderable(directory, config.policy.renderer):
        yield Fault(("policy", "renderer"), reason)
