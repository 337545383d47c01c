"""Evaluations: the rounds under way, and the figures of one (reward, its error, chances to pass,
cost).

A checkpoint keeps the rounds. Pure; called by the fold of `control`, by `steps/evaluations.py`, and
by `seamlessflow eval`.
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
"""Version and split of an evaluation."""


class EvaluatedGroup(NamedTuple):
    """All sessions of a task that counted."""

    sessions: int
    reward_mean: float
    passed: int
    """Sessions with a return of 1 or more, for a group without `returns`."""
    returns: Sequence[float] = ()
    """Return of each session; empty in a log of before 0.1.0."""
    turns: int | None = None
    """Turns of all sessions; None if the log lacks them, as for the tokens."""
    sampled_tokens: int | None = None
    prompt_tokens: int | None = None
    """Prompt tokens of all turns, each with all that the engine read before its answer."""

    @classmethod
    def from_returns(
        cls, returns: Sequence[float], costs: Sequence[SessionCost] = ()
    ) -> "EvaluatedGroup":
        """Return the group of sessions with these returns, at least one, and these costs."""
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
        """Return the group of a record; earlier releases had no returns and no costs."""
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
    """Deadlines of groups that are admitted and not over, in milliseconds, by group."""
    groups: int = 0
    ended: list[EvaluatedGroup] = field(default_factory=list)
    """Ended groups with sessions that counted."""


@dataclass(frozen=True, slots=True)
class EvaluationFigures:
    """A round's figures."""

    reward: float | None = None
    """Mean terminal reward over sessions; None without any."""
    error: float | None = None
    """Standard error of that mean; None for fewer than two groups."""
    sessions: int = 0
    pass_at: dict[int, float] = field(default_factory=dict)
    """Chance that one of k sessions of a task passes, by k."""
    pass_at_range: dict[int, ConfidenceInterval] = field(default_factory=dict)
    """Interval of 95% of each."""
    pass_all: dict[int, float] = field(default_factory=dict)
    """Chance that all of k sessions of a task pass, by k."""
    pass_all_range: dict[int, ConfidenceInterval] = field(default_factory=dict)
    turns: float | None = None
    """Turns a session; None if they are not on the log, as for the tokens."""
    sampled_tokens: float | None = None
    prompt_tokens: float | None = None


def figures(groups: Sequence[EvaluatedGroup], terms: PassTerms = USUAL) -> EvaluationFigures:
    """Return the figures of a round from its groups.

    Sessions of one task are alike, so each task is a cluster of samples (arXiv 2411.00640, section
    2.2). The error is sqrt(G / (G - 1) sum over tasks (n (m - mean))^2) / N. G counts tasks and N
    sessions; a task has n sessions with the mean m. With one session a task it is the standard
    deviation over sqrt(N).
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
    """Return the mean over sessions of what groups have together; None if a group lacks it."""
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
    """Return the rounds that `rounds_json` gave these values for."""
    return {
        (version, split): EvaluationRound(
            dict(open_), groups, [EvaluatedGroup(*group) for group in ended]
        )
        for version, split, open_, groups, ended in values
    }
