"""Devices that the pod of a node asks for. Pure."""

from collections.abc import Iterable

from seamlessflow.worker_section import WorkerSection


def device_numbers(worker: WorkerSection) -> tuple[int, ...]:
    """Return the numbers of a worker's GPUs; its two processes share them. None with cpu."""
    kind, _, number = (worker.device or "").partition(":")
    if kind != "cuda":
        return ()
    return worker.devices or (int(number or 0),)


def device_count(workers: Iterable[WorkerSection]) -> int:
    """Return the number of GPUs of all these workers, each GPU once."""
    return len({number for worker in workers for number in device_numbers(worker)})
