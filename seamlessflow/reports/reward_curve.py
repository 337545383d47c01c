"""Rewards by optimizer step, task set and evaluation, from `control` and `trajectories`. Pure.

The steps are those that led to the newest weights; a step that was executed again counts once. A
step's rewards are the returns of all sessions in its groups (`StepCommitted`). Groups that a filter
kept out of the loss are among them. The metric `reward_mean` is the returns' mean. If a filter
dropped groups while the batch was made (`GroupDropped`), their rewards stand beside these. Called
by `summary.py`, drawn by `charts.py`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Any

from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Record, Trajectory
from seamlessflow.schemas.tokens import POLICY
from seamlessflow.trainer.credit import ONE_REWARD
from seamlessflow.trainer.data.credit.returns import RewardWeights, session_return
from seamlessflow.trainer.data.lengths import PRUNED
from seamlessflow.trainer.recovery.resume import surviving

NO_WEIGHTS: Mapping[str, RewardWeights] = {}
EDGE_STEPS = 10
"""Most first and last steps that reports compare."""
_FROM = "reward_from/"
_GROUPS_FROM = "groups_from/"


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionFacts:
    """Facts about a trajectory that reports need."""

    purpose: str
    reward: float | None
    """Its return; None if it was not judged."""
    turns: int
    tokens_sampled: int
    interrupted_turns: int
    """Turns that were continued after an interruption."""
    limit: str = ""
    """Limit that ended it: `time`, `context` or `max_tokens`; empty if none did."""
    masked: Mapping[str, int] = field(default_factory=dict)
    """Sampled tokens that are not trained, by reason."""
    fate: str = "ended"
    """`pruned`, `failed` (its cause is not the policy), or `ended`."""
    returns: Mapping[str, float | None] = field(default_factory=dict)
    """Return by policy, for policies that weigh rewards otherwise than the first one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFacts:
    """An optimizer step's facts; `rewards` has one entry for each session of its groups."""

    step: int
    version: int
    rewards: tuple[float | None, ...]
    dropped_rewards: tuple[float | None, ...] = ()
    """Rewards in groups that a filter dropped while its batch was made."""
    at_ms: int | None = None
    """Time when it completed; None if that is not on the log."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    trained_tokens: Mapping[str, int] = field(default_factory=dict)
    """Tokens that entered the loss, by session."""
    equal: frozenset[str] = frozenset()
    """Sessions in groups whose rewards are all equal: they came to the step and taught nothing."""

    @property
    def reward(self) -> float | None:
        """Mean terminal reward; None unless every session has one."""
        return mean_reward([self])


def session_facts(
    trajectories: Iterable[Trajectory],
    weights: RewardWeights = ONE_REWARD,
    of_others: Mapping[str, RewardWeights] = NO_WEIGHTS,
) -> dict[str, SessionFacts]:
    """Return facts by session id; a session's first record counts.

    `weights`: for the named rewards that add up to a return. `of_others`: further policies' weights
    by name, if they are different.
    """
    facts: dict[str, SessionFacts] = {}
    for trajectory in trajectories:
        if trajectory.session_id not in facts:
            returns = {
                name: session_return(trajectory, other_weights)
                for name, other_weights in of_others.items()
            }
            facts[trajectory.session_id] = replace(_session(trajectory, weights), returns=returns)
    return facts


def for_policy(sessions: Mapping[str, SessionFacts], policy: str) -> Mapping[str, SessionFacts]:
    """Return the sessions with the returns that a policy's weights give."""
    return {
        name: replace(session, reward=session.returns[policy])
        if policy in session.returns
        else session
        for name, session in sessions.items()
    }


def step_facts(control: Iterable[Record], sessions: Mapping[str, SessionFacts]) -> list[StepFacts]:
    """Return the steps behind the newest weights, oldest first; `control` is in log order."""
    fold = _StepFold()
    for record in control:
        fold.apply(record)
    return [fold.step(commit, sessions) for commit in surviving(fold.commits)]


def evaluation_curves(control: Iterable[Record]) -> dict[str, list[r.EvaluationCompleted]]:
    """Return by name each evaluation set's rounds with a counted session, by the steps behind them.

    If several rounds have as many steps behind them, the newest counts: earlier ones evaluated
    weights that were lost.
    """
    curves: dict[str, dict[int, r.EvaluationCompleted]] = {}
    for record in control:
        if isinstance(record, r.EvaluationCompleted) and record.reward_mean is not None:
            curves.setdefault(record.split, {})[record.step] = record
    return {
        split: [rounds[step] for step in sorted(rounds)] for split, rounds in sorted(curves.items())
    }


def task_set_figures(
    control: Iterable[Record], steps: Sequence[StepFacts]
) -> dict[str, dict[str, Any]]:
    """Return the summary's `evaluations` and `sources`."""
    curves = evaluation_curves(control)
    rounds = {
        split: [_round_figures(completed) for completed in curve] for split, curve in curves.items()
    }
    return {"evaluations": rounds, "sources": _source_figures(steps)}


def _source_figures(steps: Sequence[StepFacts]) -> dict[str, dict[str, Any]]:
    """Return each task set's groups and mean reward, in the first and the last steps.

    Nothing if all groups are from one set.
    """
    names = {name for step in steps for name in step.metrics if name.startswith(_FROM)}
    figures: dict[str, dict[str, Any]] = {}
    for name in sorted(metric.removeprefix(_FROM) for metric in names):
        groups = sum(step.metrics.get(_GROUPS_FROM + name, 0.0) for step in steps)
        first, last = (_mean_from(name, part) for part in edges(steps))
        figures[name] = {"groups": round(groups), "reward_first10": first, "reward_last10": last}
    return figures if len(figures) > 1 else {}


def mean_reward(steps: Sequence[StepFacts]) -> float | None:
    """Return the mean over all sessions in these steps; None unless every session has a reward."""
    rewards = [reward for step in steps for reward in step.rewards]
    numbers = [reward for reward in rewards if reward is not None]
    return fmean(numbers) if numbers and len(numbers) == len(rewards) else None


def sampled_reward(steps: Sequence[StepFacts]) -> float | None:
    """Return what `mean_reward` does, with the groups that a filter dropped."""
    return mean_reward(
        [replace(step, rewards=step.rewards + step.dropped_rewards) for step in steps]
    )


def edge_size(steps: int) -> int:
    """Return how many first and last steps reports compare; no step is in both."""
    return min(EDGE_STEPS, max(1, steps // 2))


def edges(steps: Sequence[StepFacts]) -> tuple[Sequence[StepFacts], Sequence[StepFacts]]:
    """Return the first and the last `edge_size` steps; a run with one step has no last ones."""
    size = edge_size(len(steps))
    return steps[:size], steps[max(size, len(steps) - size) :]


def _round_figures(completed: r.EvaluationCompleted) -> dict[str, Any]:
    figures = {"reward_mean": completed.reward_mean, "reward_error": completed.reward_error}
    costs = {
        "turns": completed.turns,
        "sampled_tokens": completed.sampled_tokens,
        "prompt_tokens": completed.prompt_tokens,
    }
    return {
        "step": completed.step,
        "version": completed.version,
        **{name: None if figure is None else round(figure, 6) for name, figure in figures.items()},
        "sessions": completed.sessions,
        "pass_at": {k: round(chance, 6) for k, chance in completed.pass_at.items()},
        "pass_all": {k: round(chance, 6) for k, chance in completed.pass_all.items()},
        **{name: round(cost, 6) for name, cost in costs.items() if cost is not None},
    }


def _mean_from(source: str, steps: Sequence[StepFacts]) -> float | None:
    """Return a task set's mean reward in these steps, each weighted by its groups from the set."""
    means = [
        (step.metrics[_FROM + source], step.metrics[_GROUPS_FROM + source])
        for step in steps
        if _FROM + source in step.metrics
    ]
    groups = sum(count for _, count in means)
    return round(sum(mean * count for mean, count in means) / groups, 6) if groups else None


def _session(trajectory: Trajectory, weights: RewardWeights) -> SessionFacts:
    return SessionFacts(
        purpose=trajectory.purpose,
        reward=session_return(trajectory, weights),
        turns=trajectory.turns,
        tokens_sampled=sum(node.length for node in trajectory.nodes if node.origin == POLICY),
        interrupted_turns=trajectory.interrupted_turns,
        limit=trajectory.limit,
        masked=trajectory.masked_tokens,
        fate=_fate(trajectory),
    )


def _fate(trajectory: Trajectory) -> str:
    if trajectory.status == PRUNED:
        return PRUNED
    return "ended" if trajectory.cause == "policy" else "failed"


@dataclass(slots=True)
class _StepFold:
    """State folded from `control`."""

    commits: list[r.StepCommitted] = field(default_factory=list)
    completed: dict[tuple[int, str], r.StepCompleted] = field(default_factory=dict)
    members: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Sessions by group, for each group that became ready."""
    dropped: list[tuple[str, ...]] = field(default_factory=list)
    """Sessions in each group that a filter dropped since the last commit."""
    dropped_of: dict[int, list[tuple[str, ...]]] = field(default_factory=dict)
    """Dropped groups by step; a step that is executed again keeps those from its first time."""

    def apply(self, record: Record) -> None:
        match record:
            case r.GroupReady():
                self.members[record.group_id] = record.sessions
            case r.GroupDropped(reason="filtered"):
                self.dropped.append(self.members.get(record.group_id, ()))
            case r.StepCommitted():
                self.commits.append(record)
                # They were dropped while the batch of this step was made.
                self.dropped_of.setdefault(record.step, []).extend(self.dropped)
                self.dropped = []
            case r.StepSkipped():
                self.dropped = []
            case r.StepCompleted():
                self.completed[record.version, record.lineage] = record

    def step(self, commit: r.StepCommitted, sessions: Mapping[str, SessionFacts]) -> StepFacts:
        """Return a committed step with its sessions' rewards."""
        completed = self.completed.get((commit.version, commit.lineage))
        # A group that a step trains again has its reward in the step that trained it first, and one
        # from another log has it there.
        trained = [group.sessions for group in commit.groups if not (group.reused or group.pool)]
        dropped = self.dropped_of[commit.step]
        equal = [group for group in (*trained, *dropped) if _equal(group, sessions)]

        def returns(groups: Iterable[Sequence[str]]) -> tuple[float | None, ...]:
            return tuple(
                sessions[name].reward if name in sessions else None
                for group in groups
                for name in group
            )

        return StepFacts(
            step=commit.step,
            version=commit.version,
            rewards=returns(trained),
            dropped_rewards=returns(dropped),
            at_ms=completed.at_ms if completed else None,
            metrics=completed.metrics if completed else {},
            trained_tokens=commit.trained_tokens,
            equal=frozenset(name for group in equal for name in group),
        )


def _equal(group: Sequence[str], sessions: Mapping[str, SessionFacts]) -> bool:
    rewards = {sessions[name].reward if name in sessions else None for name in group}
    return len(rewards) == 1 and None not in rewards
