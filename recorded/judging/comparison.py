"""Comparison of recorded returns with those under another judge. Pure.

A session's advantage is its return minus its group's mean. The sign says in which direction the
policy learns from the session. A group with equal returns teaches nothing.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean

SMALLEST = 1e-8
"""Largest difference between returns that count as equal, as for advantages."""


@dataclass(frozen=True, slots=True)
class JudgedAnew:
    """A recorded session, and the reward that another judge gives it."""

    session_id: str
    group_id: str
    value: float | None
    """The reward; None if the judge gave none."""
    reason: str
    """Why it gave none; empty with a reward."""
    before: float | None
    """The recorded return; None if the session did not count."""
    after: float | None
    """Return with the new reward; None if it would not count."""


@dataclass(frozen=True, slots=True)
class JudgeComparison:
    """Differences between two judges, over all sessions that count under both."""

    sessions: int
    """Sessions that count under both."""
    changed: int
    """Sessions with another return."""
    signs: int
    """Sessions whose advantage has another sign."""
    groups: int
    """Groups that taught something when they were recorded."""
    lost: int
    """Groups among these whose returns would be equal."""
    gained: int
    """Groups with equal returns that would teach something."""
    mean_before: float
    mean_after: float
    unrewarded: int
    """Sessions to which the judge gave no reward."""
    left_out: int
    """Rewarded sessions that count under only one judge."""

    @property
    def sign_share(self) -> float:
        """Share of sessions whose advantage has another sign."""
        return self.signs / self.sessions if self.sessions else 0.0

    @property
    def lost_share(self) -> float:
        """Share of the groups that taught something which would now teach nothing."""
        return self.lost / self.groups if self.groups else 0.0

    @property
    def unrewarded_share(self) -> float:
        """Share of all sessions to which the judge gave no reward."""
        whole = self.sessions + self.unrewarded + self.left_out
        return self.unrewarded / whole if whole else 0.0


@dataclass(frozen=True, slots=True)
class JudgeBounds:
    """Largest shares that are accepted; None: any."""

    signs: float | None = None
    lost: float | None = None
    unrewarded: float | None = None

    def exceeded(self, comparison: JudgeComparison) -> Iterator[str]:
        """Yield a sentence for each bound that a comparison exceeds."""
        shares = (
            ("advantages with another sign", comparison.sign_share, self.signs),
            ("groups that lose their signal", comparison.lost_share, self.lost),
            ("sessions without a reward", comparison.unrewarded_share, self.unrewarded),
        )
        for what, share, bound in shares:
            if bound is not None and share > bound:
                yield f"{what}: {share:.1%}, more than {bound:.1%}"


def compared(judged: Iterable[JudgedAnew]) -> JudgeComparison:
    """Return the differences over these sessions."""
    groups: dict[str, list[tuple[float, float]]] = defaultdict(list)
    unrewarded = left_out = 0
    for session in judged:
        if session.value is None:
            unrewarded += 1
        elif session.before is None or session.after is None:
            left_out += 1
        else:
            groups[session.group_id].append((session.before, session.after))
    pairs = [pair for members in groups.values() for pair in members]
    before = {name: [old for old, _ in members] for name, members in groups.items()}
    after = {name: [new for _, new in members] for name, members in groups.items()}
    taught = {name for name, returns in before.items() if _differ(returns)}
    teaches = {name for name, returns in after.items() if _differ(returns)}
    signs = (zip(_signs(before[name]), _signs(after[name]), strict=True) for name in groups)
    return JudgeComparison(
        sessions=len(pairs),
        changed=sum(abs(old - new) > SMALLEST for old, new in pairs),
        signs=sum(old != new for members in signs for old, new in members),
        groups=len(taught),
        lost=len(taught - teaches),
        gained=len(teaches - taught),
        mean_before=fmean(old for old, _ in pairs) if pairs else 0.0,
        mean_after=fmean(new for _, new in pairs) if pairs else 0.0,
        unrewarded=unrewarded,
        left_out=left_out,
    )


def _differ(returns: Sequence[float]) -> bool:
    return max(returns) - min(returns) > SMALLEST


def _signs(returns: Sequence[float]) -> list[int]:
    """Return -1, 0 or 1 for each return: below, at or above the mean."""
    mean = fmean(returns)
    return [(value > mean + SMALLEST) - (value < mean - SMALLEST) for value in returns]
