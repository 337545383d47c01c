"""What each optimizer step was rewarded with, from `control` and `trajectories`. Pure.

The steps are those behind the newest weights; ones that were executed again count once. A step's
reward is the mean of the terminal rewards of all sessions of its groups (`StepCommitted`), those
of filtered groups included. Called by `summary.py` and drawn by `reward_chart.py`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from schemas.records import Record, StepCommitted, StepCompleted, Trajectory
from trainer.recovery import surviving
from trainer.sessions import session_return


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
    commits: list[StepCommitted] = []
    completed: dict[tuple[int, str], StepCompleted] = {}
    for record in control:
        if isinstance(record, StepCommitted):
            commits.append(record)
        elif isinstance(record, StepCompleted):
            completed[record.version, record.lineage] = record
    return [
        _step(one, completed.get((one.version, one.lineage)), sessions)
        for one in surviving(commits)
    ]


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


def _step(
    one: StepCommitted, completed: StepCompleted | None, sessions: Mapping[str, SessionFacts]
) -> StepFacts:
    names = [name for group in one.groups for name in group.sessions]
    return StepFacts(
        step=one.step,
        version=one.version,
        rewards=tuple(sessions[name].reward if name in sessions else None for name in names),
        at_ms=completed.at_ms if completed else None,
        metrics=completed.metrics if completed else {},
    )
