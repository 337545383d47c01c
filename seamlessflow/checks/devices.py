"""Check of devices: each named device exists."""

import os
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from seamlessflow.config import RunConfig, WorkerSection
from seamlessflow.infra.device_model.rates import ModelTooLarge
from seamlessflow.infra.device_model.settings import worker_rates
from seamlessflow.infra.faults import Fault, suggestion
from seamlessflow.infra.settings import ENV_PREFIX
from seamlessflow.infra.variables import SettingPath
from seamlessflow.processes.ranks import trains

_URL = f"{ENV_PREFIX}ROLLOUT__VLLM__URL"
_KINDS = ("auto", "cpu", "cuda", "mps", "xpu", "npu", "hpu")


def device_faults(
    config: RunConfig, gpus: int | None, here: Sequence[WorkerSection] | None = None
) -> Iterator[Fault]:
    """Yield a fault for each device that a worker in `here` (None: all) names but does not have.

    `gpus`: how many GPUs there are, None if unknown.
    """
    reported = set()
    for number, worker in enumerate(config.workers):
        if here is not None and worker not in here:
            continue
        seen = _visible(gpus, {**os.environ, **worker.environment})
        for path, device in _devices(config, number, worker):
            text = _fault(device, seen)
            if not text and worker.devices and _are_gpus(device, seen):
                path = ("workers", number, "devices")
                text = _fault(f"cuda:{max(worker.devices)}", seen)
            if text and path not in reported:
                reported.add(path)
                yield Fault(path, text)


def modelled_faults(config: RunConfig) -> Iterator[Fault]:
    """Yield a fault for each worker whose modelled devices are too small for the model."""
    trained = trains(config) if config.trainer.backend == "clock" else []
    sampled = [worker for worker in config.workers if "rollout" in worker.tags]
    modelled = [*trained, *(sampled if config.rollout.engine == "clock" else [])]
    for count in {worker.device_count: None for worker in modelled}:
        try:
            worker_rates(config.device_model, count)
        except ModelTooLarge as error:
            yield Fault(("device_model", "model"), str(error))


def divided_faults(config: RunConfig) -> Iterator[Fault]:
    """Yield a fault for each worker whose devices its vLLM server could not use exactly.

    Yield one also if several workers would share a running server.
    """
    sampled = [worker for worker in config.workers if "rollout" in worker.tags]
    if config.rollout.engine != "vllm":
        return
    for count in {worker.device_count: None for worker in sampled}:
        try:
            config.rollout.vllm.over(count)
        except ValueError as error:
            yield Fault(("rollout", "vllm", "replicas"), str(error))
    yield from _shared_servers(config, sampled)


def _shared_servers(config: RunConfig, sampled: Sequence[WorkerSection]) -> Iterator[Fault]:
    """Yield a fault for each running server that several workers name."""
    users = defaultdict(list)
    for worker in sampled:
        url = worker.environment.get(_URL, config.rollout.vllm.url)
        users[worker.node or config.head, url].append(worker.id)
    for (_, url), ids in users.items():
        if url is not None and len(ids) > 1:
            text = f"{url} is for one worker, not for {', '.join(ids)}"
            remedy = f"give each a server of its own, as {_URL} in its environment"
            yield Fault(("rollout", "vllm", "url"), f"{text}: {remedy}")


def _devices(
    config: RunConfig, number: int, worker: WorkerSection
) -> Iterator[tuple[SettingPath, str]]:
    """Yield each device that a worker's processes use, with the setting that names it."""
    computes = "train" in worker.tags and config.trainer.backend != "clock"
    samples = "rollout" in worker.tags and config.rollout.engine != "clock"
    if worker.device is not None:
        if computes or samples:
            yield ("workers", number, "device"), worker.device
        return
    if samples and config.rollout.engine == "torch":
        yield ("rollout", "torch", "device"), config.rollout.torch.device
    if samples and config.rollout.engine == "vllm" and config.rollout.vllm.gpu:
        yield ("rollout", "vllm", "gpu"), "cuda"
    if computes:
        yield ("trainer", "device"), config.trainer.device


def _are_gpus(device: str, gpus: int | None) -> bool:
    return device.startswith("cuda") or (device == "auto" and bool(gpus))


def _fault(device: str, gpus: int | None) -> str:
    """Return what is wrong with a device, empty if nothing is."""
    kind, colon, number = device.partition(":")
    if kind not in _KINDS or (colon and not number.isdecimal()):
        near = "; did you mean cuda?" if kind == "gpu" else suggestion(kind, _KINDS)
        return f"{device!r} is no device, such as cpu or cuda:0{near}"
    if kind != "cuda" or gpus is None or int(number or 0) < gpus:
        return ""
    present = "no GPU"
    if gpus > 1:
        present = f"cuda:0 to cuda:{gpus - 1}"
    elif gpus:
        present = "cuda:0 alone"
    return f"there is no {device}; this machine has {present}"


def _visible(gpus: int | None, environment: Mapping[str, str]) -> int | None:
    """Return how many GPUs a process sees: CUDA_VISIBLE_DEVICES up to its first wrong name."""
    listed = environment.get("CUDA_VISIBLE_DEVICES")
    if listed is None or gpus is None:
        return gpus
    seen = 0
    for name in listed.split(","):
        number = name.strip()
        if not number or (number.lstrip("-").isdecimal() and not 0 <= int(number) < gpus):
            break
        seen += 1
    return seen
