"""Groups of one session, of which an estimator that compares sessions learns nothing. Pure."""

from seamlessflow.trainer.credit import COMPARED
from seamlessflow.trainer.data.batch import Batch
from seamlessflow.trainer.settings import TrainerSection

_ALONE = "reinforce_pp, gae, turn_gae and distill train such groups"


def lone_group(batch: Batch, settings: TrainerSection) -> str:
    """Return a warning about the first group that asked for one session; empty if all is well."""
    if settings.advantage not in COMPARED or settings.loss.chosen_surrogate == "cloning":
        return ""
    for group in batch.groups:
        source = group.group.sessions[0].source
        if source.group_size == 1:
            return (
                f"group {source.group_id} is of one session, and trainer.advantage "
                f"{settings.advantage} compares the sessions of a group, so it taught nothing: "
                "open sessions of one task with the same group_id, each with its sample and the "
                f"group_size, or set trainer.advantage ({_ALONE})"
            )
    return ""
