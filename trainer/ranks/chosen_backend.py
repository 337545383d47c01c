"""The back end of a gang's rank that computes, by `trainer.backend`."""

from importlib.util import find_spec

from seamlessflow.infra.errors import SeamlessFlowError
from seamlessflow.trainer.backends.fsdp_backend import FsdpBackend
from seamlessflow.trainer.backends.rank_backend import RankBackend
from seamlessflow.trainer.settings import TrainerSection


class LibraryMissing(SeamlessFlowError):
    """A library that a back end needs and that is not installed."""

    lasting = True

    def __init__(self, library: str, extra: str) -> None:
        self.library = library
        super().__init__(
            f"trainer.backend = {extra} needs {library}: install seamlessflow[{extra}]"
        )


def chosen_backend(settings: TrainerSection) -> type[RankBackend]:
    """Return the class of the back end. Raise `LibraryMissing`."""
    if settings.backend != "megatron":
        return FsdpBackend
    if find_spec("megatron") is None:
        raise LibraryMissing("megatron-core", "megatron")
    # Not at the top: its library takes ten seconds to import, and need not be installed.
    from seamlessflow.trainer.backends.megatron.megatron_backend import MegatronBackend

    return MegatronBackend
