"""The devices of a worker that computes with torch: on one in this process, on each further one in
a process of its own.
"""

from collections.abc import Callable

import torch

from seamlessflow.infra.deadline import Stopping
from seamlessflow.infra.host import device_named
from seamlessflow.infra.network.line import Line
from seamlessflow.trainer.backends.backend import Computing
from seamlessflow.trainer.backends.meeting.meeting import Meeting
from seamlessflow.trainer.backends.torch_backend import TorchBackend
from seamlessflow.trainer.ranks.chosen_backend import chosen_backend
from seamlessflow.trainer.ranks.further import WorkerDevices
from seamlessflow.trainer.settings import TrainerSettings


def torch_devices(
    settings: TrainerSettings,
    way: Meeting | Line | None,
    lost: Callable[[BaseException], None],
    stopping: Stopping,
    computing: Computing,
) -> WorkerDevices:
    """Return the devices with the model loaded; `lost` gets the end of a further rank.

    Raises `ModelUnusable`, and for a gang `LibraryMissing`, `WorkersAbsent` and `LineLost`.
    """
    trainer = settings.trainer
    named = device_named(trainer.device, torch.cuda.is_available)
    kind = named.partition(":")[0]
    first, *further = [_device(kind, number) for number in trainer.devices] or [named]
    section = trainer.model_copy(update={"device": first})
    model = settings.policy.model

    def made() -> TorchBackend:
        if way is None:
            return TorchBackend(model, section, computing)
        return chosen_backend(trainer)(model, section, way, computing, stopping)

    place = "" if way is None else way.place
    return WorkerDevices(trainer.rank, further, place, made, lost)


def _device(kind: str, number: int) -> str:
    return kind if kind == "cpu" else f"{kind}:{number}"
