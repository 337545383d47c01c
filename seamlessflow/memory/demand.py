"""Memory that a run needs on its workers' devices and hosts.

It follows from the configuration and the models' shapes. Called by the command `plan` and by the
check before a run starts.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from seamlessflow.config import RunConfig, WorkerSection
from seamlessflow.device_defaults import runs_on_gpu
from seamlessflow.each_policy import each_served
from seamlessflow.infra.device_model.model_shape import ModelShape, read_shape
from seamlessflow.machine import CONTEXT, Capacity, MemoryPart, MemoryParts, total
from seamlessflow.memory.engine import ENGINE_SHARE, EngineMemory, EngineShape, engine_memory
from seamlessflow.memory.training import (
    RankMemory,
    RankShape,
    offloaded_bytes,
    rank_memory,
)
from seamlessflow.trainer.parallelism import SIZES

_SHARE = "--gpu-memory-utilization"


@dataclass(frozen=True, slots=True)
class WorkerMemory:
    """A worker's memory: on each device, and on its host."""

    workers: tuple[str, ...]
    """Workers that each take this memory."""
    devices: int
    on_gpu: bool
    rank: RankMemory | None
    """None for a worker that does not train with torch."""
    offloaded: float
    """Bytes that each of its ranks moves to the host when the role leaves."""
    engine: EngineMemory | None
    """None for a worker that does not sample from a model."""
    asleep: float
    """Bytes that the engine keeps on the host while the devices train."""

    @property
    def engine_bytes(self) -> float:
        """Return what the engine takes on each device."""
        return 0.0 if self.engine is None else total(self.engine.parts) + self.engine.kv_bytes

    @property
    def rank_bytes(self) -> float:
        """Return the most that a training rank takes on each device."""
        return 0.0 if self.rank is None else total(self.rank.device_parts)

    @property
    def device_bytes(self) -> float:
        """Return the most that rank and engine take on each device, one after the other."""
        if self.rank is None or self.engine is None:
            return self.rank_bytes + self.engine_bytes
        # On a CPU no memory changes hands; on a GPU each leaves what CUDA itself keeps.
        if not self.on_gpu:
            return self.rank_bytes + self.engine_bytes
        return max(self.rank_bytes, self.engine_bytes) + CONTEXT

    @property
    def least_bytes(self) -> float:
        """Return each device's memory for any sequences: for training, or an engine's weights."""
        rank = 0.0 if self.rank is None else total(self.rank.kept)
        if self.engine is None:
            return rank
        weights = self.engine.parts[0].bytes
        return max(rank, weights) if self.on_gpu else rank + weights

    @property
    def host_parts(self) -> MemoryParts:
        """Return what the worker takes on its host."""
        parts = []
        if self.rank is not None:
            parts += [MemoryPart(part.name, self.devices * part.bytes) for part in self.rank.host]
        if self.asleep:
            parts.append(MemoryPart("weights of a sleeping engine", self.asleep))
        if not self.on_gpu:
            parts.append(MemoryPart("on its devices", self.devices * self.device_bytes))
        return tuple(parts)


def shapes_of(config: RunConfig) -> Mapping[Path, ModelShape]:
    """Return by directory the shape of each model that a run's trainers and engines load.

    Raises `ShapeUnknown`.
    """
    shapes: dict[Path, ModelShape] = {}
    for policy_config in each_served(config):
        for directory in (policy_config.policy.model, *_side(policy_config).values()):
            if directory not in shapes:
                shapes[directory] = read_shape(directory)
    return shapes


def memory_of(
    config: RunConfig,
    shapes: Mapping[Path, ModelShape],
    machine: Capacity,
    here: Sequence[WorkerSection] | None = None,
) -> list[WorkerMemory]:
    """Return what a run's workers `here` (None: all) take, alike workers together."""
    kinds: dict[tuple[object, ...], WorkerMemory] = {}
    for policy_config in each_served(config):
        for worker in policy_config.workers:
            if here is not None and worker not in here:
                continue
            memory = _worker(policy_config, shapes, machine, worker)
            key = (policy_config.run.policy, memory.devices, memory.on_gpu, *worker.tags)
            before = kinds[key].workers if key in kinds else ()
            kinds[key] = replace(memory, workers=(*before, worker.id))
    return list(kinds.values())


def _worker(
    config: RunConfig, shapes: Mapping[Path, ModelShape], machine: Capacity, worker: WorkerSection
) -> WorkerMemory:
    gpu = runs_on_gpu(config, worker, machine.gpus)
    trains = "train" in worker.tags and config.trainer.backend != "clock"
    samples = "rollout" in worker.tags and config.rollout.engine in ("torch", "vllm")
    rank = rank_shape(config, shapes, gpu, leaves=samples) if trains else None
    engine = _engine(config, shapes[config.policy.model], worker, gpu) if samples else None
    kept = 0.0
    if engine is not None and gpu and trains:
        copies = config.rollout.vllm.replicas if config.rollout.engine == "vllm" else 1
        kept = copies * engine.size * engine.model.parameters
    return WorkerMemory(
        workers=(worker.id,),
        devices=worker.device_count,
        on_gpu=gpu,
        rank=None if rank is None else rank_memory(rank, config.trainer),
        offloaded=0.0 if rank is None else offloaded_bytes(rank, config.trainer),
        engine=None if engine is None else engine_memory(engine, machine.device_bytes),
        asleep=kept,
    )


def rank_shape(
    config: RunConfig, shapes: Mapping[Path, ModelShape], gpu: bool, leaves: bool
) -> RankShape:
    """Return what a rank's memory follows from; `leaves`: the role changes on its devices.

    A chain longer than `micro_batch_tokens` is a separate micro-batch.
    """
    model = shapes[config.policy.model]
    side = _side(config)
    longest = config.policy.max_context
    if model.layer is not None and model.layer.positions:
        longest = min(longest, model.layer.positions)
    tokens = max(config.trainer.micro_batch_tokens, longest)
    others = {name: shapes[directory] for name, directory in side.items()}
    return RankShape(model, tokens, longest, gpu, leaves, **others)


def _engine(config: RunConfig, model: ModelShape, worker: WorkerSection, gpu: bool) -> EngineShape:
    rollout = config.rollout
    positions = model.layer.positions if model.layer is not None else 0
    own_limit = rollout.torch.max_length if rollout.engine == "torch" else rollout.vllm.max_length
    limits = (config.policy.max_context, own_limit, positions)
    longest = min(limit for limit in limits if limit)
    if rollout.engine == "torch":
        size = SIZES[rollout.torch.dtype]
        kv = float(rollout.torch.kv_bytes)
        share = 1.0
        return EngineShape(model, 1, size, rollout.capacity, longest, kv, gpu, share)
    vllm = rollout.vllm
    published = config.trainer.weights_dtype or config.trainer.dtype
    size = SIZES[published if vllm.dtype == "auto" else vllm.dtype]
    kv_bytes = None if vllm.kv_bytes is None else float(vllm.kv_bytes)
    share = float(_argument(vllm.arguments, _SHARE) or ENGINE_SHARE)
    sharing = vllm.sharing(worker.device_count)
    rows = math.ceil(rollout.capacity / vllm.replicas)
    return EngineShape(model, sharing, size, rows, longest, kv_bytes, gpu, share)


def _argument(arguments: Sequence[str], name: str) -> str | None:
    """Return a server argument's value, as `--name=value` or `--name value`."""
    for number, word in enumerate(arguments):
        if word.startswith(f"{name}="):
            return word.partition("=")[2]
        if word == name and number + 1 < len(arguments):
            return arguments[number + 1]
    return None


def _side(config: RunConfig) -> Mapping[str, Path]:
    """Return the directories of the models beside the policy, by their part in training."""
    trainer = config.trainer
    policy = config.policy.model
    models = {}
    if trainer.backend == "clock":
        return {}
    if trainer.reference_used:
        models["reference"] = trainer.reference or policy
    if trainer.advantage == "distill" and trainer.teacher is not None:
        models["teacher"] = trainer.teacher
    if trainer.critic_used and trainer.critic.kind != "head":
        models["critic"] = trainer.critic.model or policy
    return models
