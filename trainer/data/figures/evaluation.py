"""Evaluations: the rounds under way, and the figures of one (reward, its error, chances to pass).

A checkpoint keeps the rounds. Pure; called by the fold of `control`, by `steps/evaluations.py`, and
by `seamlessflow eval`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import comb, sqrt
from statistics import fmean
from typing import Any, NamedTuple

PASSED = 1.0
"""Least return of a session that passes."""
Round = tuple[int, str]
"""Version and split of an evaluation."""


class EvaluatedGroup(NamedTuple):
    """All sessions of a task that counted."""

    sessions: int
    reward_mean: float
    passed: int
    """Sessions with a return of 1 or more."""

    @classmethod
    def from_returns(cls, returns: Sequence[float]) -> "EvaluatedGroup":
        """Return the group of sessions with these returns, at least one."""
        return cls(len(returns), fmean(returns), passed(returns))


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
    """Chance that one in k sessions on a task passes, by k."""


def figures(groups: Sequence[EvaluatedGroup]) -> EvaluationFigures:
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
    passing = [(group.sessions, group.passed) for group in counted]
    return EvaluationFigures(mean, error, sessions, pass_at_k(passing))


def pass_at_k(groups: Iterable[tuple[int, int]]) -> dict[int, float]:
    """Return the chance that one of k sessions in a group passes, by k (1, 2, 4 and so on).

    `groups`: number of sessions in each group, and how many pass. The unbiased estimate is
    1 - C(n - c, k) / C(n, k) if c of n sessions pass (arXiv 2107.03374, equation 1). The largest k
    is at most the smallest group's size.
    """
    counts = [(size, passed) for size, passed in groups if size]
    chances = {}
    k = 1
    while counts and k <= min(size for size, _ in counts):
        chances[k] = fmean(1 - comb(n - c, k) / comb(n, k) for n, c in counts)
        k *= 2
    return chances


def passed(returns: Iterable[float]) -> int:
    """Return how many sessions with these returns pass."""
    return sum(value >= PASSED for value in returns)


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
