"""Sessions that ended since the step before, whether or not they are of its batch. Pure.

Called by the dataloader.
"""

from collections import Counter
from dataclasses import dataclass, field

from seamlessflow.schemas.records import Trajectory
from seamlessflow.trainer.data.figures.cut import failed_at_limit
from seamlessflow.trainer.data.lengths import PRUNED, SessionLength, length_metrics, length_of
from seamlessflow.trainer.data.sessions import FailedSession


@dataclass(slots=True)
class SessionsOfStep:
    """The training sessions that ended since the last step."""

    _lengths: list[SessionLength] = field(default_factory=list)
    _limits: Counter[str] = field(default_factory=Counter)
    """By the limit that ended them; empty: none did."""
    _rules: Counter[str] = field(default_factory=Counter)
    """Their turns, by the rule that matched each."""
    _counts: Counter[str] = field(default_factory=Counter)
    """Sessions, by metric."""

    def add(self, trajectory: Trajectory) -> None:
        """Count a session."""
        self._lengths.append(length_of(trajectory))
        self._limits[trajectory.limit] += 1
        self._rules.update(trajectory.match_rules)
        self._counts["sessions_pruned"] += trajectory.status == PRUNED
        self._counts["failed_at_limit"] += failed_at_limit(trajectory)

    def add_failed(self, session: FailedSession) -> None:
        """Count a session, which is added also, as one that does not count for its group."""
        self._counts["samples_failed"] += 1
        self._counts["samples_unrewarded"] += session.unrewarded

    def take(self) -> dict[str, float]:
        """Return the metrics of these sessions, and begin anew."""
        metrics = length_metrics("begun", self._lengths)
        count, turns = len(self._lengths), self._rules.total()
        metrics |= {"sessions_ended": float(count)} if count else {}
        metrics |= {"turns_ended": float(turns)} if turns else {}
        metrics |= {f"ended_at/{name}": n / count for name, n in self._limits.items() if name}
        metrics |= {f"matched/{rule}": n / turns for rule, n in sorted(self._rules.items())}
        metrics |= {name: float(n) for name, n in self._counts.items() if n}
        self._lengths, self._limits = [], Counter()
        self._rules, self._counts = Counter(), Counter()
        return metrics
