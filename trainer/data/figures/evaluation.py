"""Figures of an evaluation: mean reward, its standard error, chances to pass. Pure.

Called by `steps/evaluations.py`, and by `seamlessflow eval`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import sqrt
from statistics import fmean
from typing import NamedTuple

from seamlessflow.trainer.data.figures.passing import pass_at_k, passed


class EvaluatedGroup(NamedTuple):
    """All sessions of a task that counted."""

    sessions: int
    reward_mean: float
    passed: int | None
    """Sessions with a return of 1 or more; None if an earlier release did not record it."""

    @classmethod
    def of(cls, returns: Sequence[float]) -> "EvaluatedGroup":
        """Return the group of sessions with these returns, at least one."""
        return cls(len(returns), fmean(returns), passed(returns))


@dataclass(frozen=True, slots=True)
class EvaluationFigures:
    """Figures of a round."""

    reward: float | None = None
    """Mean terminal reward over sessions; None without any."""
    error: float | None = None
    """Standard error of that mean; None for fewer than two groups."""
    sessions: int = 0
    pass_at: dict[int, float] = field(default_factory=dict)
    """Chance that one of k sessions of a task passes, by k."""


def figures(groups: Sequence[EvaluatedGroup]) -> EvaluationFigures:
    """Return the figures of a round from its groups.

    Sessions of one task are alike, so the error is that of clustered samples, each task a cluster:
    sqrt(G / (G - 1) sum over tasks of (n (m - mean))^2) / N for G tasks of n sessions with the mean
    m, and N sessions (arXiv 2411.00640, section 2.2). With one session a task it is the standard
    deviation over sqrt(N).
    """
    counted = [group for group in groups if group.sessions]
    sessions, count = sum(group.sessions for group in counted), len(counted)
    if not sessions:
        return EvaluationFigures()
    mean = sum(group.sessions * group.reward_mean for group in counted) / sessions
    spread = sum((group.sessions * (group.reward_mean - mean)) ** 2 for group in counted)
    error = sqrt(count / (count - 1) * spread) / sessions if count > 1 else None
    passing = [(group.sessions, group.passed) for group in counted if group.passed is not None]
    complete = len(passing) == count
    return EvaluationFigures(mean, error, sessions, pass_at_k(passing) if complete else {})
