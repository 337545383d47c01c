"""Check of memory: a model that cannot fit on its devices, or on their host, is refused.

Only memory that does not depend on sequence lengths counts: weights, gradients, moments and
gathered copies of them. `seamlessflow plan` also shows activations.
"""

from collections.abc import Iterator, Sequence

from seamlessflow.config import RunConfig, WorkerSection
from seamlessflow.infra.device_model.model_shape import ShapeUnknown, has_sliding_window
from seamlessflow.infra.faults import Fault
from seamlessflow.machine import MEBIBYTE, Capacity, total
from seamlessflow.memory.demand import WorkerMemory, memory_of, shapes_of
from seamlessflow.memory.verdict import gibibytes, levers

_MODEL = ("policy", "model")
_OWN_MEMORY = (
    "--kv-",
    "--pipeline-parallel-size",
    "-pp",
    "--decode-context",
    "--max-model",
    "--hf",
)
"""vLLM's arguments that change how much memory a turn takes on each device."""


def memory_faults(
    config: RunConfig, machine: Capacity, here: Sequence[WorkerSection] | None = None
) -> Iterator[Fault]:
    """Yield a fault for each kind of workers `here` (None: all) that this machine cannot hold."""
    try:
        shapes = shapes_of(config)
    except ShapeUnknown:
        return  # other checks report what is wrong with a directory
    workers = memory_of(config, shapes, machine, here)
    yield from _kv_faults(config, workers)
    for worker in workers:
        available = machine.device_bytes if worker.on_gpu else None
        if available is not None and worker.least_bytes > available:
            helping = [
                lever for lever in levers(config, shapes, worker) if lever.bytes <= available
            ]
            yield Fault(_MODEL, _too_large(worker, available, [lever.change for lever in helping]))
        limit = config.trainer.offload_mb
        moved = worker.devices * worker.offloaded
        leaves = worker.on_gpu and worker.rank is not None and worker.engine is not None
        if leaves and limit is not None and moved > limit * MEBIBYTE:
            text = f"{worker.workers[0]} moves {gibibytes(moved)} of weights and optimizer to its "
            text += f"host when it rolls out, and {limit} MiB are allowed: allow as much, or let "
            yield Fault(("trainer", "offload_mb"), f"{text}workers have one role each")
    needed = _host_needs(workers)
    if machine.host_bytes is not None and needed > machine.host_bytes:
        yield Fault(
            _MODEL,
            f"needs at least {gibibytes(needed)} of this host, which has "
            f"{gibibytes(machine.host_bytes)} for it: use fewer workers here, more hosts, or "
            "trainer.master_dtype bfloat16; seamlessflow plan tells each part",
        )


def free_memory_faults(config: RunConfig, machine: Capacity, free: float | None) -> Iterator[Fault]:
    """Yield a fault if this host has less memory free now than the run takes at least."""
    try:
        shapes = shapes_of(config)
    except ShapeUnknown:
        return
    needed = _host_needs(memory_of(config, shapes, machine))
    if free is not None and needed > free:
        yield Fault(
            _MODEL,
            f"needs at least {gibibytes(needed)} of memory, and {gibibytes(free)} are free now: "
            "end other programs, or name a smaller model",
        )


def _host_needs(workers: Sequence[WorkerMemory]) -> float:
    """Return the bytes that all these workers take on their host for any sequences."""
    return sum(len(worker.workers) * _host_least(worker) for worker in workers)


def _kv_faults(config: RunConfig, workers: Sequence[WorkerMemory]) -> Iterator[Fault]:
    """Yield a fault if an engine cannot hold one full-length turn.

    Only certain faults count: vLLM decides itself if `_reckons_otherwise` is true.
    """
    engines = [worker.engine for worker in workers if worker.engine is not None]
    name = config.rollout.engine
    if not engines or (name == "vllm" and _reckons_otherwise(config)):
        return
    engine = max(engines, key=lambda shape: shape.least_kv_bytes)
    if engine.token_bytes and engine.least_kv_bytes > engine.kv_bytes:
        tokens = round(engine.least_kv_bytes / engine.token_bytes)
        yield Fault(
            ("rollout", name, "kv_bytes"),
            f"must hold keys and values of one turn of {tokens} tokens, "
            f"{round(engine.least_kv_bytes)} bytes: raise it, or lower policy.max_context "
            f"(got {round(engine.kv_bytes)})",
        )


def _reckons_otherwise(config: RunConfig) -> bool:
    """Return True if vLLM may need less for a turn than keys and values for all its tokens."""
    vllm = config.rollout.vllm
    limited = vllm.url is None and vllm.kv_bytes is not None
    overridden = any(argument.startswith(_OWN_MEMORY) for argument in vllm.arguments)
    return overridden or not limited or has_sliding_window(config.policy.model)


def _too_large(worker: WorkerMemory, available: float, changes: Sequence[str]) -> str:
    rank = worker.rank
    what = ""
    if rank is not None and total(rank.kept) > available:
        parts = ", ".join(f"{part.name} {gibibytes(part.bytes)}" for part in rank.kept)
        what = f" to train ({parts})"
    help_ = f"set {' or '.join(changes[:2])}" if changes else "use more devices"
    return (
        f"needs at least {gibibytes(worker.least_bytes)} of each device of {worker.workers[0]}"
        f"{what}, which has {gibibytes(available)}: {help_}; seamlessflow plan tells each part"
    )


def _host_least(worker: WorkerMemory) -> float:
    """Return the bytes that a worker takes on its host for any sequences."""
    size = worker.asleep
    if worker.rank is not None:
        kept = [
            part.bytes for part in worker.rank.host if part.name.startswith(("copy", "weights"))
        ]
        size += worker.devices * sum(kept)
    return size + (0.0 if worker.on_gpu else worker.devices * worker.least_bytes)
