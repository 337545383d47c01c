"""Sessions of a recorded run: their lengths and rewards, without their tokens. Pure."""

from collections import defaultdict
from dataclasses import dataclass

from seamlessflow.schemas.records import Trajectory
from seamlessflow.schemas.tokens import TOKEN_BYTES
from seamlessflow.trainer.credit import ONE_REWARD
from seamlessflow.trainer.data.credit.returns import Weights, session_return

_SAMPLED = "policy"
"""Origin of a node that was sampled."""
_CUT_SHORT = ("aborted", "timeout", "pruned")
"""Ends of sessions that have fewer turns than their agent wanted, as at the end of a run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedSession:
    """A finalized session of the training."""

    group: str
    group_size: int
    tokens: int
    """All of its tree, prompts included."""
    first: int
    """Tokens of its first prompt."""
    sampled: tuple[int, ...]
    """Tokens of each turn."""
    reward: float

    @property
    def later(self) -> int:
        """Tokens that the prompts of its later turns added."""
        return max(0, self.tokens - self.first - sum(self.sampled))


def recorded_session(
    trajectory: Trajectory, weights: Weights = ONE_REWARD
) -> RecordedSession | None:
    """Return the session of a trajectory; None if not of the training, empty or cut short.

    `weights`: of the named rewards that add up to its return.
    """
    if trajectory.purpose != "train" or not trajectory.nodes or trajectory.status in _CUT_SHORT:
        return None
    turns: defaultdict[str, int] = defaultdict(int)
    for node in trajectory.nodes:
        if node.origin == _SAMPLED:
            turns[node.turn_id] += node.length
    first = trajectory.nodes[0]
    return RecordedSession(
        group=trajectory.group_id,
        group_size=trajectory.group_size,
        tokens=len(trajectory.tokens) // TOKEN_BYTES,
        first=0 if first.origin == _SAMPLED else first.length,
        sampled=tuple(turns.values()),
        reward=session_return(trajectory, weights) or 0.0,
    )
