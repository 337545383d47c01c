"""Lengths of sessions: those that were begun, and those whose tokens are trained. Pure.

What leaves sessions out (redundancy, deadlines, staleness, filters) may leave out the long ones;
the difference of the two shows it. Called by the dataloader, by `batch.py`, and by the report of a
run.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from schemas.records import Trajectory

PRUNED = "pruned"
"""Status of a session that was stopped because its group was complete without it."""


class SessionLength(NamedTuple):
    """Length of a session, or of what there was of it when it ended."""

    tokens: int
    """Tokens sampled by the policy, trained or not."""
    turns: int


NO_LENGTH = SessionLength(0, 0)


def length_of(trajectory: Trajectory) -> SessionLength:
    """Return the length of a finalized session."""
    sampled = sum(node.length for node in trajectory.nodes if node.origin == "policy")
    return SessionLength(sampled, trajectory.turns)


def quantiles(values: Iterable[float]) -> dict[str, float]:
    """Return p10, p50, p90 and the mean, by name; nothing of nothing."""
    known = np.fromiter(values, np.float64)
    if not len(known):
        return {}
    p10, p50, p90 = np.quantile(known, (0.1, 0.5, 0.9)).tolist()
    return {"p10": p10, "p50": p50, "p90": p90, "mean": float(known.mean())}


def length_metrics(kind: str, lengths: Iterable[SessionLength]) -> dict[str, float]:
    """Return the quantiles of sessions of a kind (`begun`, `trained`), as metrics of a step."""
    known = list(lengths)
    tokens = quantiles(one.tokens for one in known)
    turns = quantiles(one.turns for one in known)
    return {
        **{f"{kind}_tokens/{name}": value for name, value in tokens.items()},
        **{f"{kind}_turns/{name}": value for name, value in turns.items()},
    }


@dataclass(slots=True)
class SessionsOfStep:
    """The training sessions that ended since the last step."""

    _lengths: list[SessionLength] = field(default_factory=list)
    _limits: Counter[str] = field(default_factory=Counter)
    """By the limit that ended them; empty: none did."""
    _pruned: int = 0

    def add(self, trajectory: Trajectory) -> None:
        """Count a session."""
        self._lengths.append(length_of(trajectory))
        self._limits[trajectory.limit] += 1
        self._pruned += trajectory.status == PRUNED

    def take(self) -> dict[str, float]:
        """Return the metrics of these sessions, and begin anew."""
        found = length_metrics("begun", self._lengths)
        count = len(self._lengths)
        found |= {f"ended_at/{name}": n / count for name, n in self._limits.items() if name}
        if self._pruned:
            found["sessions_pruned"] = float(self._pruned)
        self._lengths, self._limits, self._pruned = [], Counter(), 0
        return found
