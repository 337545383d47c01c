"""What each optimizer step was rewarded with, from `control` and `trajectories`. Pure.

The steps are those behind the newest weights; ones that were executed again count once. A step's
rewards are the terminal rewards of all sessions of its groups (`StepCommitted`), whether a filter
kept the group out of the loss or not, and of the groups (`GroupReady`) that a filter dropped while
its batch was put together (`GroupDropped`). Called by `summary.py`, drawn by `reward_chart.py`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from schemas import records as r
from schemas.records import Record, Trajectory
from trainer.data.sessions import session_return
from trainer.recovery.resume import surviving


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionFacts:
    """What is kept of a trajectory."""

    purpose: str
    reward: float | None
    """Terminal reward; None where nobody judged it."""
    turns: int
    tokens_sampled: int
    interrupted_turns: int
    """Turns that were continued after an interruption."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFacts:
    """An optimizer step; `rewards` has one entry a session."""

    step: int
    version: int
    rewards: tuple[float | None, ...]
    at_ms: int | None = None
    """When it was completed; None where that is not on the log."""
    metrics: Mapping[str, float] = field(default_factory=dict)

    @property
    def reward(self) -> float | None:
        """Mean terminal reward; None unless it is known of every session."""
        return mean_reward([self])


def session_facts(trajectories: Iterable[Trajectory]) -> dict[str, SessionFacts]:
    """Facts by session id; the first record of a session counts."""
    found: dict[str, SessionFacts] = {}
    for one in trajectories:
        if one.session_id not in found:
            found[one.session_id] = _session(one)
    return found


def step_facts(control: Iterable[Record], sessions: Mapping[str, SessionFacts]) -> list[StepFacts]:
    """The steps behind the newest weights, oldest first; `control` in the order of the log."""
    reading = _Reading()
    for record in control:
        reading.take(record)
    return [reading.step(one, sessions) for one in surviving(reading.commits)]


def mean_reward(steps: Sequence[StepFacts]) -> float | None:
    """Mean over all sessions of these steps; None unless it is known of every one."""
    rewards = [reward for step in steps for reward in step.rewards]
    known = [reward for reward in rewards if reward is not None]
    return fmean(known) if known and len(known) == len(rewards) else None


def _session(one: Trajectory) -> SessionFacts:
    return SessionFacts(
        purpose=one.purpose,
        reward=session_return(one),
        turns=one.turns,
        tokens_sampled=sum(node.length for node in one.nodes if node.origin == "policy"),
        interrupted_turns=one.interrupted_turns,
    )


@dataclass(slots=True)
class _Reading:
    commits: list[r.StepCommitted] = field(default_factory=list)
    completed: dict[tuple[int, str], r.StepCompleted] = field(default_factory=dict)
    members: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Sessions of groups that became ready."""
    dropped: list[str] = field(default_factory=list)
    """Sessions that a filter dropped since the step before."""
    dropped_of: dict[int, list[str]] = field(default_factory=dict)
    """Those by step; a step that is executed again has none of its own."""

    def take(self, record: Record) -> None:
        match record:
            case r.GroupReady():
                self.members[record.group_id] = record.sessions
            case r.GroupDropped(reason="filtered"):
                self.dropped += self.members.get(record.group_id, ())
            case r.StepCommitted():
                self.commits.append(record)
                self.dropped_of.setdefault(record.step, []).extend(self.dropped)
                self.dropped = []
            case r.StepSkipped():
                self.dropped = []
            case r.StepCompleted():
                self.completed[record.version, record.lineage] = record

    def step(self, commit: r.StepCommitted, sessions: Mapping[str, SessionFacts]) -> StepFacts:
        """A committed step with its sessions' rewards."""
        completed = self.completed.get((commit.version, commit.lineage))
        trained = [name for group in commit.groups for name in group.sessions]
        names = [*trained, *self.dropped_of[commit.step]]
        return StepFacts(
            step=commit.step,
            version=commit.version,
            rewards=tuple(sessions[name].reward if name in sessions else None for name in names),
            at_ms=completed.at_ms if completed else None,
            metrics=completed.metrics if completed else {},
        )
