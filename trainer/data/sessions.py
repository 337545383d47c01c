"""Finalized sessions as the trainer keeps them: return and chains, or the reason for not counting.

A session counts only if the policy is the cause of how it ended. One that the environment or the
infrastructure spoilt leaves its group, and the sample may be tried again. Pure; called by the
dataloader.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from schemas.records import Trajectory
from trainer.data.chains import SAMPLED, Chain, TrajectoryMalformed, chains
from trainer.data.foreign import is_foreign
from trainer.data.lengths import NO_LENGTH, SessionLength, length_of

RETURN = "reward"
"""Name of the reward that is a session's return."""

_UNJUDGED = {"unrewarded", "pruned", "filtered"}
"""Final states in which a session has no return."""

Trace = Sequence[tuple[str, bytes]]
"""Headers of a record, which name its trace; empty if it has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSource:
    """The identity of a session and the place of its record on `trajectories`."""

    session_id: str
    group_id: str
    sample: int
    attempt: int
    group_size: int
    min_group_size: int
    purpose: str
    partition: int
    offset: int
    trace: Trace = ()
    length: SessionLength = NO_LENGTH
    split: str = ""
    """Name of the task set that its task is of; empty if it was opened without one."""
    foreign: bool = False
    """True if another system sampled some of its tokens."""
    limit: str = ""
    """Limit that ended the policy, or empty: see `Trajectory.limit`."""


@dataclass(frozen=True, slots=True)
class ValidSession:
    """A session that counts for its group."""

    source: SessionSource
    reward: float
    chains: tuple[Chain, ...]
    masked: Mapping[str, int]
    """Sampled tokens that are not trained, by reason."""

    version_min: int | None
    """Oldest policy version among its trained tokens, or None without any."""
    has_turn: bool = True
    """True if the policy sampled some of its tokens."""
    turn_rewards: Mapping[str, float] = field(default_factory=dict)
    """Reward of each turn that has one."""
    punishment: float = 0.0
    """Part of its return, at most 0, for its length; see `credit/overlong.py`."""
    left_out: bool = False
    """True if it is masked because a limit ended it; it counts for the others of its group."""

    @property
    def shaped(self) -> float:
        """Return its return as estimators of advantages see it."""
        return self.reward + self.punishment

    def trained(self) -> int:
        """Return how many of its tokens may be trained."""
        return sum(chain.trained() for chain in self.chains)


@dataclass(frozen=True, slots=True)
class FailedSession:
    """A session that does not count; `cause` is `environment`, `infrastructure` or `setting`."""

    source: SessionSource
    cause: str
    detail: str

    @property
    def final(self) -> bool:
        """Return True if the settings leave it out, so that its sample is not tried again."""
        return self.cause == "setting"


def read(
    trajectory: Trajectory,
    policy: str,
    partition: int,
    offset: int,
    trace: Trace = (),
    policies: Collection[str] = (),
) -> ValidSession | FailedSession:
    """Return the session of a record of `trajectories`, with the chains that train `policy`.

    Tokens of `policies` are trained by the trainers of those, so they do not count as masked.
    """
    source = SessionSource(
        session_id=trajectory.session_id,
        group_id=trajectory.group_id or trajectory.session_id,
        sample=trajectory.sample,
        attempt=trajectory.attempt,
        group_size=trajectory.group_size,
        min_group_size=trajectory.min_group_size,
        purpose=trajectory.purpose,
        split=trajectory.split,
        partition=partition,
        offset=offset,
        trace=trace,
        length=length_of(trajectory),
        foreign=is_foreign(trajectory),
        limit=trajectory.limit,
    )
    if trajectory.cause != "policy":
        return FailedSession(source, trajectory.cause, trajectory.reason)
    reward = session_return(trajectory)
    if reward is None:
        return FailedSession(source, "environment", _unjudged(trajectory))
    try:
        found = chains(trajectory, policy, policies)
    except TrajectoryMalformed as error:
        return FailedSession(source, "infrastructure", str(error))
    oldest, has_turn = _version_min(found.chains), _has_turn(trajectory, policy)
    turn_rewards = {
        one.turn_id: one.value
        for one in trajectory.rewards
        if one.name == RETURN and one.scope == "turn" and one.turn_id is not None
    }
    return ValidSession(source, reward, found.chains, found.masked, oldest, has_turn, turn_rewards)


def _has_turn(trajectory: Trajectory, policy: str) -> bool:
    sampled = (node for node in trajectory.nodes if node.origin in SAMPLED)
    return any((node.policy or trajectory.policy) == policy for node in sampled)


def _unjudged(trajectory: Trajectory) -> str:
    return f"{trajectory.status}: {trajectory.reason or 'closed without a reward'}"


def session_return(trajectory: Trajectory) -> float | None:
    """Return the terminal reward of a session, or None if the session was not judged.

    The last session reward named `RETURN` counts. A session without one that the policy itself
    spoilt (truncated, timed out) returns 0.
    """
    if trajectory.status in _UNJUDGED:
        return None
    judged = [
        reward.value
        for reward in trajectory.rewards
        if reward.name == RETURN and reward.scope == "session"
    ]
    if judged:
        return judged[-1]
    return None if trajectory.status == "complete" else 0.0


def _version_min(found: tuple[Chain, ...]) -> int | None:
    if not found:
        return None
    return min(int(one.tokens.versions_T[one.tokens.trained_T].min()) for one in found)
