"""Returns: weighted sums over named rewards, for a session or for a turn. Pure.

Called by `data/sessions.py` and, for a run's figures, by the launcher. `weights` are the
weights in `trainer.rewards` that are not 0. A session needs each reward with such a weight.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping

from seamlessflow.schemas.records import Reward, Trajectory
from seamlessflow.trainer.credit import ONE_REWARD

RewardWeights = Mapping[str, float]

_UNJUDGED = {"unrewarded", "pruned", "filtered"}
"""Final states in which a session has no return, unless a `rollout.control` rule ended it."""

CONTROL = "control"
"""Limit for a session that a `rollout.control` rule ended, and its reward's source."""
_MOST_NAMED = 5
"""Most reward names that a text lists."""


def session_rewards(trajectory: Trajectory) -> dict[str, Reward]:
    """Return each name's last session reward."""
    return {reward.name: reward for reward in trajectory.rewards if reward.scope == "session"}


def session_return(trajectory: Trajectory, weights: RewardWeights = ONE_REWARD) -> float | None:
    """Return the weighted sum of a session's rewards, or None if the session was not judged.

    Each name's last session reward counts. A complete session that lacks one is not judged. If the
    policy itself spoilt the session (truncated, timed out), missing rewards are 0. If a
    `rollout.control` rule ended the session, the rule's settings give its return.
    """
    if trajectory.status in _UNJUDGED:
        return _pruned_return(trajectory)
    values = {name: reward.value for name, reward in session_rewards(trajectory).items()}
    if trajectory.status == "complete" and weights.keys() - values.keys():
        return None
    return weighted(values, weights)


def _pruned_return(trajectory: Trajectory) -> float | None:
    """Return the session's return if a `rollout.control` rule ended it, else None."""
    if trajectory.limit != CONTROL:
        return None
    rewards = session_rewards(trajectory).values()
    return next((reward.value for reward in rewards if reward.source == CONTROL), None)


def lacking(trajectory: Trajectory, weights: RewardWeights) -> list[str]:
    """Return the names of the rewards that a session needs and lacks."""
    rewards = session_rewards(trajectory)
    return [name for name in weights if name not in rewards]


def turn_returns(trajectory: Trajectory, weights: RewardWeights) -> dict[str, float]:
    """Return each rewarded turn's weighted sum of rewards; missing ones are 0."""
    by_turn: defaultdict[str, dict[str, float]] = defaultdict(dict)
    for reward in trajectory.rewards:
        if reward.scope == "turn" and reward.turn_id is not None and reward.name in weights:
            by_turn[reward.turn_id][reward.name] = reward.value
    return {turn: weighted(rewards, weights) for turn, rewards in by_turn.items()}


def weighted(rewards: Mapping[str, float], weights: RewardWeights) -> float:
    """Return the weighted sum of rewards; the order in the setting does not change it."""
    return sum((weights[name] * rewards.get(name, 0.0) for name in sorted(weights)), 0.0)


def unjudged(trajectory: Trajectory, weights: RewardWeights) -> str:
    """Return the reason why a session was not judged, with its rewards' names."""
    if trajectory.status in _UNJUDGED and trajectory.reason:
        return f"{trajectory.status}: {trajectory.reason}"
    lacks = quoted(lacking(trajectory, weights))
    present = quoted(session_rewards(trajectory)) or "no other one"
    return f"{trajectory.status}: closed without the reward {lacks}; it has {present}"


def quoted(names: Collection[str]) -> str:
    """Return names in quotes for people, only the first ones if many; empty without any."""
    shown = [f"'{name:.40}'" for name in list(names)[:_MOST_NAMED]]
    more = [f"and {len(names) - len(shown)} more"] if len(names) > len(shown) else []
    return ", ".join([*shown, *more])
