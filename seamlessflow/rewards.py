"""Terminal rewards by session, group and optimizer step. Pure.

A step's rewards are those of all sessions of its groups, and of the groups that were filtered out
while it was being filled: what is not trained on is not left out of what is reported.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from schemas import records as r
from schemas.records import Record, Trajectory

TERMINAL = ("reward", "session")
"""Name and scope of the reward that is a session's return."""

_FILTERED = "filtered"


@dataclass(frozen=True)
class StepRewards:
    """Terminal rewards of the sessions behind one optimizer step."""

    step: int
    version: int
    rewards: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Their mean."""
        return fmean(self.rewards)


@dataclass
class Returns:
    """Terminal rewards of finalized sessions, each session once."""

    of_session: dict[str, float] = field(default_factory=dict)
    sessions_of: dict[str, list[str]] = field(default_factory=dict)
    """By group."""

    def add(self, trajectory: Trajectory) -> None:
        """Takes in a trajectory; a repeated one changes nothing."""
        reward = terminal(trajectory)
        if reward is None or trajectory.session_id in self.of_session:
            return
        self.of_session[trajectory.session_id] = reward
        if trajectory.cause == "policy":
            group = self.sessions_of.setdefault(trajectory.group_id, [])
            group.append(trajectory.session_id)


def terminal(trajectory: Trajectory) -> float | None:
    """A session's return."""
    for reward in trajectory.rewards:
        if (reward.name, reward.scope) == TERMINAL:
            return reward.value
    return None


def by_step(control: Iterable[Record], returns: Returns) -> list[StepRewards]:
    """Every step that stands and has rewards, in order.

    Of a step that was made again after a restart only the last one stands.
    """
    steps: dict[int, StepRewards] = {}
    filtered: list[str] = []
    for record in control:
        if isinstance(record, r.GroupDropped) and record.reason == _FILTERED:
            filtered += returns.sessions_of.get(record.group_id, ())
        elif isinstance(record, r.StepSkipped):
            filtered = []
        elif isinstance(record, r.StepCommitted):
            steps[record.step] = _rewards(record, filtered, returns)
            filtered = []
    return [steps[number] for number in sorted(steps) if steps[number].rewards]


def mean_over(steps: Sequence[StepRewards]) -> float | None:
    """Mean over all sessions of these steps."""
    rewards = [reward for step in steps for reward in step.rewards]
    return fmean(rewards) if rewards else None


def _rewards(commit: r.StepCommitted, filtered: Sequence[str], returns: Returns) -> StepRewards:
    known: Mapping[str, float] = returns.of_session
    sessions = [session for group in commit.groups for session in group.sessions]
    rewards = tuple(known[session] for session in [*sessions, *filtered] if session in known)
    return StepRewards(commit.step, commit.version, rewards)
