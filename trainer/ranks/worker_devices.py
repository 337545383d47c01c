"""The choice of what computes in a training process, by `trainer.backend`."""

from collections.abc import Callable

from seamlessflow.infra.deadline import Stopping
from seamlessflow.infra.network.line import Line
from seamlessflow.trainer.backends.backend import Computing
from seamlessflow.trainer.backends.clock.clock_backend import ClockBackend
from seamlessflow.trainer.backends.meeting.meeting import Meeting
from seamlessflow.trainer.ranks.further import WorkerDevices
from seamlessflow.trainer.settings import TrainerSettings


def worker_devices(
    settings: TrainerSettings,
    find_way: Callable[[], Meeting | Line | None],
    lost: Callable[[BaseException], None],
    stopping: Stopping,
    computing: Computing,
) -> WorkerDevices:
    """Return the devices of the worker; `lost` gets the end of one of its further ranks.

    `find_way` returns the meeting of its gang with rank 0, else the line to it; None without a
    gang. It may wait for rank 0. `computing` is told of the first rank alone.
    Raises `ModelUnusable`, for a clock `ModelTooLarge`, and `WorkersAbsent` and `LineLost`.
    """
    if settings.trainer.backend == "clock" and (way := find_way()) is not None:
        clock = ClockBackend(settings, way, computing, stopping)
        return WorkerDevices(settings.trainer.rank, (), "", lambda: clock, lost)
    # Not at the top: a clock needs no torch, which takes seconds to import.
    from seamlessflow.trainer.ranks.torch_devices import torch_devices

    # Behind the import: all workers of a gang import at the same time, not one after another.
    return torch_devices(settings, find_way(), lost, stopping, computing)
