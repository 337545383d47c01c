"""Judgement on a run's memory: the workers that fit, and the settings that would help. Pure."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seamlessflow.config import RunConfig
from seamlessflow.infra.device_model.model_shape import ModelShape
from seamlessflow.machine import MEBIBYTE, Capacity, MemoryPart, MemoryParts, total
from seamlessflow.memory.demand import WorkerMemory, memory_of, rank_shape
from seamlessflow.memory.engine import EngineMemory
from seamlessflow.memory.training import RankMemory, rank_memory, trained_parameters
from seamlessflow.trainer.settings import TrainerSection

_GIBIBYTE = 1 << 30
_MOST_RANKS = 1024
_LEAST_TOKENS = 1024


@dataclass(frozen=True, slots=True)
class Lever:
    """A change to settings, and what would be needed with it."""

    change: str
    bytes: float


@dataclass(frozen=True, slots=True)
class MemoryVerdict:
    """Parts that take memory on one device or host, and the memory there is."""

    place: str
    parts: MemoryParts
    notes: tuple[str, ...]
    available: float | None
    """Bytes that exist there; None if that is unknown."""
    levers: tuple[Lever, ...] = ()
    """Changes that would take less memory; the last one would take least."""
    partial: bool = False
    """True if a part is unknown and not among `parts`."""
    lacking: str = ""
    """Why it cannot work with any amount of memory; empty if nothing is lacking."""

    @property
    def needed(self) -> float:
        """Sum of all parts, in bytes."""
        return total(self.parts)

    @property
    def fits(self) -> bool | None:
        """True or False; None if it is unknown."""
        if self.lacking:
            return False
        if self.available is None or (self.partial and self.needed <= self.available):
            return None
        return self.needed <= self.available


def gibibytes(size: float) -> str:
    """Return a byte count as text: in MiB below one GiB."""
    return f"{size / MEBIBYTE:.0f} MiB" if size < _GIBIBYTE else f"{size / _GIBIBYTE:.1f} GiB"


def verdicts(
    config: RunConfig, shapes: Mapping[Path, ModelShape], machine: Capacity
) -> Iterator[MemoryVerdict]:
    """Yield a verdict for each kind of worker's devices, by role, and for each host."""
    for worker in memory_of(config, shapes, machine):
        if worker.rank is not None:
            yield _training(config, shapes, machine, worker, worker.rank)
        if worker.engine is not None:
            yield _engine(config, worker, worker.engine, machine)
    for node, workers in config.nodes.items():
        if not workers:
            continue
        parts = [
            MemoryPart(f"{part.name} ({worker.workers[0]})", part.bytes * len(worker.workers))
            for worker in memory_of(config, shapes, machine, workers)
            for part in worker.host_parts
        ]
        place = f"host {node}" if node else "host"
        yield MemoryVerdict(place, tuple(parts), _host_notes(config, shapes), machine.host_bytes)


def _training(
    config: RunConfig,
    shapes: Mapping[Path, ModelShape],
    machine: Capacity,
    worker: WorkerMemory,
    rank: RankMemory,
) -> MemoryVerdict:
    model = shapes[config.policy.model]
    shape = rank_shape(config, shapes, worker.on_gpu, worker.engine is not None)
    available = machine.device_bytes if worker.on_gpu else machine.host_bytes
    notes = [f"most in phase {rank.phase}; a micro-batch of {shape.tokens:,} tokens, all trained"]
    if shape.longest > config.trainer.micro_batch_tokens:
        notes.append("a chain of policy.max_context is longer than trainer.micro_batch_tokens")
    if model.unknown:
        notes.append(f"activations are unknown and not in the sum: {model.unknown}")
    parts = rank.device_parts
    fits = available is not None and total(parts) <= available
    changes = () if fits else tuple(levers(config, shapes, worker))
    place = _place(worker, "training")
    partial = bool(model.unknown)
    return MemoryVerdict(place, parts, tuple(notes), available, changes, partial)


def _engine(
    config: RunConfig, worker: WorkerMemory, engine: EngineMemory, machine: Capacity
) -> MemoryVerdict:
    available = machine.device_bytes if worker.on_gpu else machine.host_bytes
    place = _place(worker, "rollout")
    kv = MemoryPart("keys and values", engine.kv_bytes)
    notes = ["keys and values of a token are unknown"]
    if engine.token_bytes:
        notes = [
            f"a token takes {engine.token_bytes / 1024:.1f} KiB on each device; "
            f"{engine.kv_tokens:,} tokens fit, {engine.turns:,} turns of full length at once"
        ]
    lacking = ""
    if engine.token_bytes and not engine.turns:
        kv = MemoryPart("keys and values of one turn", engine.least_kv_bytes)
        lacking = (
            f"no turn of full length fits: its keys and values take "
            f"{gibibytes(engine.least_kv_bytes)}, and there are {gibibytes(engine.kv_bytes)} for "
            "them"
        )
    parts = (*engine.parts, kv)
    changes: tuple[Lever, ...] = ()
    if lacking or (available is not None and total(parts) > available):
        changes = tuple(_engine_levers(config, engine, total(parts)))
    return MemoryVerdict(
        place,
        parts,
        (*notes, lacking) if lacking else tuple(notes),
        available,
        changes,
        lacking=lacking,
    )


def _engine_levers(config: RunConfig, engine: EngineMemory, needed: float) -> Iterator[Lever]:
    """Yield the changed settings with which a full-length turn fits."""
    rollout = config.rollout
    kv_bytes = rollout.vllm.kv_bytes if rollout.engine == "vllm" else rollout.torch.kv_bytes
    if kv_bytes is not None and kv_bytes < engine.least_kv_bytes:
        least = math.ceil(engine.least_kv_bytes)
        yield Lever(f"rollout.{rollout.engine}.kv_bytes {least}", needed)
    if rollout.engine == "vllm":
        yield Lever("more devices for each engine (workers[].devices)", needed / 2)
    if 0 < engine.kv_tokens < config.policy.max_context:
        fitting = total(engine.parts) + engine.kv_bytes
        yield Lever(f"policy.max_context {engine.kv_tokens}", fitting)


def _place(worker: WorkerMemory, role: str) -> str:
    first, *more = worker.workers
    names = f"{first} and {len(more)} more" if more else first
    each = "each of its devices" if worker.devices > 1 else "its device"
    return f"{role} of {names}, {each}"


def _host_notes(config: RunConfig, shapes: Mapping[Path, ModelShape]) -> tuple[str, ...]:
    published = trained_parameters(shapes[config.policy.model], config.trainer)
    size = 4 if (config.trainer.weights_dtype or config.trainer.dtype) == "float32" else 2
    text = gibibytes(size * published)
    return (f"beside it the page cache of a published version, {text}, which can be dropped",)


def levers(
    config: RunConfig, shapes: Mapping[Path, ModelShape], worker: WorkerMemory
) -> Iterator[Lever]:
    """Yield the changed settings with which a rank needs less memory, the least need last."""
    now = worker.rank_bytes
    helping = []
    for change, changed in _changes(config):
        shape = rank_shape(changed, shapes, worker.on_gpu, worker.engine is not None)
        needed = total(rank_memory(shape, changed.trainer).device_parts)
        if needed < 0.98 * now:
            helping.append(Lever(change, needed))
    yield from sorted(helping, key=lambda lever: -lever.bytes)


def _changes(config: RunConfig) -> Iterator[tuple[str, RunConfig]]:
    """Yield configurations that take less memory, each with one change."""
    trainer = config.trainer

    def changed(**values: Any) -> RunConfig:
        return config.model_copy(update={"trainer": trainer.model_copy(update=values)})

    if not trainer.gradient_checkpointing and trainer.backend != "megatron":
        change = "trainer.gradient_checkpointing true"
        yield change, changed(gradient_checkpointing=True)
        longest = config.policy.max_context
        if longest > _LEAST_TOKENS:
            half = changed(gradient_checkpointing=True, micro_batch_tokens=longest // 2)
            policy = config.policy.model_copy(update={"max_context": longest // 2})
            yield (
                f"{change}, trainer.micro_batch_tokens and policy.max_context {longest // 2}",
                half.model_copy(update={"policy": policy}),
            )
    if trainer.attention == "eager":
        yield "trainer.attention sdpa", changed(attention="sdpa")
    if trainer.micro_batch_tokens > config.policy.max_context:
        tokens = config.policy.max_context
        yield f"trainer.micro_batch_tokens {tokens}", changed(micro_batch_tokens=tokens)
    if trainer.compute == "float32":
        yield "trainer.dtype bfloat16", changed(dtype="bfloat16", compute_dtype=None)
    if trainer.master_dtype == "float32":
        change = "trainer.master_dtype bfloat16"
        yield change, changed(dtype="bfloat16", compute_dtype=None, master_dtype="bfloat16")
    yield from _more_ranks(trainer, changed)


def _more_ranks(
    trainer: TrainerSection, changed: Callable[..., RunConfig]
) -> Iterator[tuple[str, RunConfig]]:
    """Yield configurations with twice, four and eight times the ranks."""
    for factor in (2, 4, 8):
        ranks = trainer.ranks * factor
        if ranks > _MOST_RANKS:
            return
        if trainer.backend == "megatron":
            parts = trainer.megatron.tensor_parallel * factor
            divided = trainer.megatron.model_copy(update={"tensor_parallel": parts})
            change = f"trainer.megatron.tensor_parallel {parts}"
            yield change, changed(ranks=max(ranks, parts), megatron=divided)
        else:
            yield (
                f"trainer.backend fsdp2, trainer.ranks {ranks}",
                changed(backend="fsdp2", ranks=ranks),
            )
