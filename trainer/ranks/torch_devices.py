"""A torch worker's devices, each with the back end that `trainer.backend` chooses.

One device is in this process, each further one in a separate process (`further.py`).
"""

from collections.abc import Callable
from importlib.util import find_spec

import torch

from seamlessflow.infra.clock import Stopping
from seamlessflow.infra.errors import SeamlessFlowError
from seamlessflow.infra.host import device_named
from seamlessflow.infra.network.line import Line
from seamlessflow.trainer.backends.backend import Computing
from seamlessflow.trainer.backends.fsdp_backend import FsdpBackend
from seamlessflow.trainer.backends.meeting import Meeting
from seamlessflow.trainer.backends.rank_backend import RankBackend
from seamlessflow.trainer.backends.torch_backend import TorchBackend
from seamlessflow.trainer.ranks.further import WorkerDevices
from seamlessflow.trainer.settings import TrainerSection, TrainerSettings


class LibraryMissing(SeamlessFlowError):
    """A library that a back end needs and the environment lacks."""

    lasting = True

    def __init__(self, library: str, extra: str) -> None:
        self.library = library
        super().__init__(
            f"trainer.backend = {extra} needs {library}: install seamlessflow[{extra}]"
        )


def chosen_backend(settings: TrainerSection) -> type[RankBackend]:
    """Return the back end's class. Raise `LibraryMissing`."""
    if settings.backend != "megatron":
        return FsdpBackend
    if find_spec("megatron") is None:
        raise LibraryMissing("megatron-core", "megatron")
    # Not at the top: its library takes ten seconds to import, and need not be installed.
    from seamlessflow.trainer.backends.megatron.megatron_backend import MegatronBackend

    return MegatronBackend


def torch_devices(
    settings: TrainerSettings,
    way: Meeting | Line | None,
    lost: Callable[[BaseException], None],
    stopping: Stopping,
    computing: Computing,
) -> WorkerDevices:
    """Return the devices with the model loaded; `lost` gets the error if a further rank ends.

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
