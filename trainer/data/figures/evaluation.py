"""Evaluations: the rounds under way, and a round's figures.

The figures are the reward, its error, chances to pass, and the cost. A checkpoint keeps the rounds.
Pure; called by the fold of `control`, by `steps/evaluations.py`, and by `seamlessflow eval`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import sqrt
from statistics import fmean
from typing import Any, NamedTuple

from seamlessflow.schemas.records import GroupReady
from seamlessflow.trainer.data.figures.chances import (
    USUAL,
    ConfidenceInterval,
    PassTerms,
    chances,
    passed,
)
from seamlessflow.trainer.data.lengths import SessionCost

Round = tuple[int, str]
"""An evaluation's version and split."""


class EvaluatedGroup(NamedTuple):
    """All sessions that counted for a task."""

    sessions: int
    reward_mean: float
    passed: int
    """Sessions with a return of 1 or more, for a group without `returns`."""
    returns: Sequence[float] = ()
    """Each session's return; empty in a log from before 0.1.0."""
    turns: int | None = None
    """All sessions' turns; like the token counts, None if the log lacks them."""
    sampled_tokens: int | None = None
    prompt_tokens: int | None = None
    """Prompt tokens summed over turns: all that the engine read before each answer."""

    @classmethod
    def from_returns(
        cls, returns: Sequence[float], costs: Sequence[SessionCost] = ()
    ) -> "EvaluatedGroup":
        """Return the group from its sessions' returns, at least one, and their costs."""
        return cls(
            len(returns),
            fmean(returns),
            passed(returns),
            returns,
            sum(cost.turns for cost in costs) if costs else None,
            sum(cost.sampled_tokens for cost in costs) if costs else None,
            sum(cost.prompt_tokens for cost in costs) if costs else None,
        )

    @classmethod
    def from_record(cls, ready: GroupReady) -> "EvaluatedGroup":
        """Return a record's group; earlier releases recorded no returns and no costs."""
        return cls(
            len(ready.sessions),
            ready.reward_mean,
            ready.passed or 0,
            ready.returns,
            sum(ready.turns) if ready.turns else None,
            sum(ready.lengths) if ready.lengths else None,
            sum(ready.prompt_tokens) if ready.prompt_tokens else None,
        )

    def passing(self, success: float) -> int:
        """Return how many sessions have at least this return."""
        return passed(self.returns, success) if self.returns else self.passed


@dataclass(slots=True)
class EvaluationRound:
    """The groups that evaluate one version on one split."""

    open: dict[str, int] = field(default_factory=dict)
    """Deadline in milliseconds of each group that is admitted and not over, by group."""
    groups: int = 0
    ended: list[EvaluatedGroup] = field(default_factory=list)
    """Ended groups that have sessions that counted."""


@dataclass(frozen=True, slots=True)
class EvaluationFigures:
    """A round's figures."""

    reward: float | None = None
    """Mean return over sessions; None without any."""
    error: float | None = None
    """That mean's standard error; None for fewer than two groups."""
    sessions: int = 0
    pass_at: dict[int, float] = field(default_factory=dict)
    """Chance that at least one of a task's k sessions passes, by k."""
    pass_at_range: dict[int, ConfidenceInterval] = field(default_factory=dict)
    """Each chance's 95% interval."""
    pass_all: dict[int, float] = field(default_factory=dict)
    """Chance that all of a task's k sessions pass, by k."""
    pass_all_range: dict[int, ConfidenceInterval] = field(default_factory=dict)
    turns: float | None = None
    """Mean turns per session; like the mean token counts, None if the log lacks them."""
    sampled_tokens: float | None = None
    prompt_tokens: float | None = None


def figures(groups: Sequence[EvaluatedGroup], terms: PassTerms = USUAL) -> EvaluationFigures:
    """Return a round's figures from its groups.

    One task's sessions are alike, so each task is a cluster of samples (arXiv 2411.00640, section
    2.2). The error is sqrt(G / (G - 1) sum over tasks (n (m - mean))^2) / N. G counts tasks and N
    sessions; a task has n sessions with the mean m. With one session per task it is the standard
    deviation / sqrt(N).
    """
    counted = [group for group in groups if group.sessions]
    sessions = sum(group.sessions for group in counted)
    count = len(counted)
    if not sessions:
        return EvaluationFigures()
    mean = sum(group.sessions * group.reward_mean for group in counted) / sessions
    spread = sum((group.sessions * (group.reward_mean - mean)) ** 2 for group in counted)
    error = sqrt(count / (count - 1) * spread) / sessions if count > 1 else None
    passing = [(group.sessions, group.passing(terms.success)) for group in counted]
    chance = chances(passing, terms.k)
    return EvaluationFigures(
        mean,
        error,
        sessions,
        pass_at=chance.at,
        pass_at_range=chance.at_range,
        pass_all=chance.all,
        pass_all_range=chance.all_range,
        turns=_mean([group.turns for group in counted], sessions),
        sampled_tokens=_mean([group.sampled_tokens for group in counted], sessions),
        prompt_tokens=_mean([group.prompt_tokens for group in counted], sessions),
    )


def _mean(sums: Iterable[int | None], sessions: int) -> float | None:
    """Return the groups' sum, divided by the sessions; None if a group lacks its number."""
    numbers = list(sums)
    present = [number for number in numbers if number is not None]
    return sum(present) / sessions if len(present) == len(numbers) else None


def rounds_json(rounds: Mapping[Round, EvaluationRound]) -> list[list[Any]]:
    """Return rounds as plain values."""
    return [
        [*key, evaluation.open, evaluation.groups, [list(group) for group in evaluation.ended]]
        for key, evaluation in rounds.items()
    ]


def rounds_from(values: Sequence[Sequence[Any]]) -> dict[Round, EvaluationRound]:
    """Return the rounds from the values that `rounds_json` returned."""
    return {
        (version, split): EvaluationRound(
            dict(open_), groups, [EvaluatedGroup(*group) for group in ended]
        )
        for version, split, open_, groups, ended in values
    }
