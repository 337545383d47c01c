"""Back ends of a gang of one rank in this process, each made in place of the one before it."""

from collections.abc import Callable
from pathlib import Path

from seamlessflow.trainer.backends.fsdp_backend import FsdpBackend
from seamlessflow.trainer.backends.megatron.megatron_backend import MegatronBackend
from seamlessflow.trainer.backends.torch_backend import TorchBackend
from seamlessflow.trainer.settings import TrainerSection
from tests.builders.trainer.gangs.meetings import meeting
from tests.builders.trainer.gangs.own_gang import leave_gang

Make = Callable[[Path, TrainerSection], TorchBackend]
"""Returns the back end of a model's directory, in place of any before it."""


def divided(model: Path, settings: TrainerSection) -> TorchBackend:
    """Return the Megatron back end."""
    leave_gang()
    return MegatronBackend(model, settings.model_copy(update={"backend": "megatron"}), meeting())


def sharded(model: Path, settings: TrainerSection) -> TorchBackend:
    """Return the FSDP2 back end."""
    leave_gang()
    return FsdpBackend(model, settings.model_copy(update={"backend": "fsdp2"}), meeting())


BACKENDS: dict[str, Make] = {"torch": TorchBackend, "megatron": divided, "fsdp2": sharded}
