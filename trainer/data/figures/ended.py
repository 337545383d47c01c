"""Sessions that ended since the last step: their figures, and notices about them.

They need not be in a step's batch. Pure; called by the dataloader.
"""

from collections import Counter
from dataclasses import dataclass, field

from seamlessflow.schemas.records import GroupReady, ProgressStalled, Record, Trajectory
from seamlessflow.trainer.credit import TURN_REWARDS
from seamlessflow.trainer.data.advantages import EQUAL
from seamlessflow.trainer.data.lengths import PRUNED, SessionLength, length_metrics, length_of
from seamlessflow.trainer.data.sessions import FailedSession

UNUSED_TURN_REWARDS = (
    "the advantage estimator of this run uses no rewards of turns: they are recorded, and sessions "
    "are trained by their reward alone, so let that hold all that counts, or choose another one"
)
_LEFT_OPEN = ("idle", "too old")
"""Reasons that a manager gives when it closes a session because the client did not."""


@dataclass(slots=True)
class SessionsOfStep:
    """The training sessions that ended since the last step."""

    _lengths: list[SessionLength] = field(default_factory=list)
    _limits: Counter[str] = field(default_factory=Counter)
    """Sessions by the limit that ended them; empty: no limit did."""
    _rules: Counter[str] = field(default_factory=Counter)
    """The sessions' turns, by the rule that matched each."""
    _counts: Counter[str] = field(default_factory=Counter)
    """Sessions, by metric."""

    def add(self, trajectory: Trajectory, passed: bool = False) -> None:
        """Count a session; `passed` is True for one with a return of at least `PASSED`."""
        self._lengths.append(length_of(trajectory))
        self._limits[trajectory.limit] += 1
        self._rules.update(trajectory.match_rules)
        self._counts["sessions_pruned"] += trajectory.status == PRUNED and not trajectory.limit
        self._count_control(trajectory, passed)
        self._counts["failed_at_limit"] += failed_at_limit(trajectory)

    def _count_control(self, trajectory: Trajectory, passed: bool) -> None:
        verdicts = [node for node in trajectory.nodes if node.control]
        ended = sum(not node.control_exempt for node in verdicts)
        self._counts["turns_stopped"] += ended
        if len(verdicts) > ended:
            self._counts["exempt_passed" if passed else "exempt_failed"] += 1

    def add_failed(self, session: FailedSession) -> None:
        """Note a session that does not count for its group; the caller also gives it to `add`."""
        self._counts["samples_failed"] += 1
        self._counts["samples_unrewarded"] += session.unrewarded

    def add_explored(self, ready: GroupReady) -> None:
        """Count an exploration: one with equal returns is not sampled again."""
        equal = max(ready.returns) - min(ready.returns) <= EQUAL
        self._counts["explored_equal" if equal else "explored_mixed"] += 1

    def take(self) -> dict[str, float]:
        """Return the metrics of these sessions, and begin anew."""
        metrics = length_metrics("begun", self._lengths)
        count = len(self._lengths)
        turns = self._rules.total()
        metrics |= {"sessions_ended": float(count)} if count else {}
        metrics |= {"turns_ended": float(turns)} if turns else {}
        metrics |= {f"ended_at/{name}": n / count for name, n in self._limits.items() if name}
        metrics |= {f"matched/{rule}": n / turns for rule, n in sorted(self._rules.items())}
        metrics |= {name: float(n) for name, n in self._counts.items() if n}
        self._lengths = []
        self._limits = Counter()
        self._rules = Counter()
        self._counts = Counter()
        return metrics


@dataclass(slots=True)
class UnusedRewards:
    """The warning, given once in a run, that turn rewards are recorded but not used."""

    _warned: bool = False

    def warning(self, trajectory: Trajectory, advantage: str, now_ms: int) -> list[Record]:
        """Return a warning at the first session with unused turn rewards."""
        used = advantage in TURN_REWARDS
        if self._warned or used or all(node.reward is None for node in trajectory.nodes):
            return []
        self._warned = True
        detail = f"{UNUSED_TURN_REWARDS} (first in session {trajectory.session_id})"
        return [ProgressStalled(at_ms=now_ms, what="turn rewards", detail=detail, since_ms=now_ms)]


def failed_at_limit(trajectory: Trajectory) -> bool:
    """Return True if the agent gave a reason for its end, but the manager recorded a limit."""
    cut = trajectory.status == "truncated" and bool(trajectory.limit)
    return cut and trajectory.reason not in ("", *_LEFT_OPEN)


@dataclass(slots=True)
class CutErrors:
    """The notice, given once in a run, about sessions that count although their agent failed.

    A limit had cut the agent's last answer. Such sessions are trained with their reward, 0 without
    one (`agents.on_limit zero`). Without a notice, people would overlook an agent that has a bug or
    cannot handle a cut answer.
    """

    _noticed: bool = False

    def notice(self, trajectory: Trajectory, now_ms: int) -> list[Record]:
        """Return a notice at the first such session."""
        if self._noticed or not failed_at_limit(trajectory):
            return []
        self._noticed = True
        why = trajectory.reason.splitlines()[-1]
        detail = (
            f"{trajectory.session_id} failed after a limit ({trajectory.limit}) and is trained "
            f"with its reward, 0 without one: {why} (agents.on_limit retry leaves such sessions "
            "out; the log of the agents has the whole error)"
        )
        return [ProgressStalled(at_ms=now_ms, what="agent", detail=detail, since_ms=now_ms)]
