"""The warning that rewards of turns are recorded but not used. Pure; called by the dataloader."""

from dataclasses import dataclass

from seamlessflow.schemas.records import ProgressStalled, Record, Trajectory
from seamlessflow.trainer.credit import TURN_REWARDS

UNUSED_TURN_REWARDS = (
    "the advantage estimator of this run uses no rewards of turns: they are recorded, and sessions "
    "are trained by their reward alone, so let that hold all that counts, or choose another one"
)


@dataclass(slots=True)
class UnusedRewards:
    """The warning of a run, which is given once."""

    _warned: bool = False

    def warning(self, trajectory: Trajectory, advantage: str, now_ms: int) -> list[Record]:
        """Return a warning at the first session with rewards of turns that are not used."""
        used = advantage in TURN_REWARDS
        if self._warned or used or all(node.reward is None for node in trajectory.nodes):
            return []
        self._warned = True
        detail = f"{UNUSED_TURN_REWARDS} (first in session {trajectory.session_id})"
        return [ProgressStalled(at_ms=now_ms, what="turn rewards", detail=detail, since_ms=now_ms)]
