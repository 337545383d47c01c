"""Two moments of a run beside each other: the state at each, and what came between. Pure."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import isclose, isfinite
from statistics import fmean, pstdev

from seamlessflow.console.log.moment import Moment
from seamlessflow.console.log.run_log import RunPicture
from seamlessflow.console.models.control import MOST_WARNINGS, ControlFold, WorkerState
from seamlessflow.console.models.course import CompletedStep, Course, starts_of
from seamlessflow.console.models.warnings import RunWarning
from seamlessflow.console.views.curves import USUAL
from seamlessflow.recorded.retrain.recorded_run import changed_settings
from seamlessflow.schemas.tokens import shown_step
from seamlessflow.schemas.topics import CONTROL
from seamlessflow.trainer.metrics.names import meaning_of

WINDOW = 10
"""Steps that a mean covers, unless a query says how many."""
MOST_WINDOW = 200
_MOST_ENDS = 12
_SAME = 1e-9
"""Relative difference between means that rounding may cause."""


@dataclass(frozen=True, slots=True)
class PictureAt:
    """A run at a moment, and the offset behind its last record on `control`."""

    picture: RunPicture
    end: int

    @property
    def place(self) -> str:
        """The moment as an address names it, also for now; empty before the first record."""
        of_control = str(Moment(CONTROL.name, 0, self.end - 1)) if self.end else ""
        return str(self.picture.moment or of_control)


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedMoment:
    """A moment that is compared."""

    moment: str
    at_ms: int
    done: int
    """The policy's steps so far, without those that a restart undid."""
    first: int | None
    """First and last step in the means, from 1; None without a step."""
    last: int | None


@dataclass(frozen=True, slots=True)
class CountChange:
    """A number on both sides; None where a side has none."""

    name: str
    before: int | None
    after: int | None
    change: int
    """Difference; 0 if a side has no number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricChange:
    """A metric's means over the last steps before each moment."""

    name: str
    meaning: str
    before: float | None
    after: float | None
    change: float | None
    spread: float
    """Standard deviation over each side's steps, as a mean of both sides."""
    marked: bool
    """True if the change is larger than the spread of single steps."""

    @property
    def size(self) -> float:
        """Change divided by the spread; infinite if single steps do not differ."""
        change = abs(self.change or 0.0)
        return change / self.spread if self.spread and change else change and float("inf")


@dataclass(frozen=True, slots=True)
class WorkerChange:
    """A worker at both moments; an empty text where it is missing."""

    worker: str
    before: str
    after: str
    changed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerStart:
    """A trainer start between the moments, and the settings that it changed."""

    policy: str
    step: int
    """Step count from which it goes on."""
    at_ms: int
    offset: int
    settings: Mapping[str, str] = field(default_factory=dict)
    """Changes by path, as `old -> new`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MomentsCompared:
    """Both moments, the earlier one first."""

    policy: str
    policies: Sequence[str]
    window: int
    before: ComparedMoment
    after: ComparedMoment
    metrics: Sequence[MetricChange]
    """The most changed first."""
    counts: Mapping[str, Sequence[CountChange]]
    """Numbers by subject, such as `groups`."""
    workers: Sequence[WorkerChange]
    warnings: Sequence[RunWarning]
    """Warnings between the moments, the newest first."""
    warnings_left_out: bool
    """True if earlier ones may be missing, since only the last ones are kept."""
    starts: Sequence[TrainerStart]


@dataclass(frozen=True, slots=True)
class EarlierEnd:
    """A step's end with which a moment may be compared."""

    step: int
    at_ms: int
    moment: str


def moments_compared(
    course: Course, sides: Sequence[PictureAt], policy: str, window: int
) -> MomentsCompared:
    """Return two moments beside each other; an empty policy is the first one."""
    (before, after) = sorted(sides, key=lambda side: (side.end, side.picture.at_ms))
    mine = course.of_policy(policy, after.end)
    earlier = course.of_policy(mine.policy, before.end).steps
    old = earlier[-window:]
    new = mine.steps[-window:]
    warnings = [
        warning for warning in after.picture.control.warnings if warning.offset >= before.end
    ]
    return MomentsCompared(
        policy=mine.policy,
        policies=mine.policies,
        window=window,
        before=_moment(before, len(earlier), old),
        after=_moment(after, len(mine.steps), new),
        metrics=_metrics(course, old, new),
        counts=_counts(course, before, after),
        workers=list(_workers(before.picture.control, after.picture.control)),
        warnings=warnings[::-1],
        warnings_left_out=len(warnings) == MOST_WARNINGS,
        starts=list(_starts(course, before.end, after.end)),
    )


def earlier_ends(course: Course, policy: str, end: int) -> Sequence[EarlierEnd]:
    """Return step ends before the last record in front of an offset, spread over the whole run."""
    steps = [row for row in course.of_policy(policy, end).steps if row.offset < end - 1]
    thin = max(0, len(steps) - 1) // _MOST_ENDS + 1
    return [
        EarlierEnd(shown_step(row.step), row.at_ms, str(Moment(CONTROL.name, 0, row.offset)))
        for row in steps[::-1][::thin]
    ]


def counts_changed(before: Mapping[str, int], after: Mapping[str, int]) -> list[CountChange]:
    """Return two sides' numbers by name, in the order in which they come; 0 for a missing one."""
    names = dict.fromkeys((*before, *after))
    return [_count(name, before.get(name, 0), after.get(name, 0)) for name in names]


def _count(name: str, before: int | None, after: int | None) -> CountChange:
    change = 0 if before is None or after is None else after - before
    return CountChange(name, before, after, change)


def _moment(side: PictureAt, done: int, steps: Sequence[CompletedStep]) -> ComparedMoment:
    return ComparedMoment(
        moment=side.place,
        at_ms=side.picture.at_ms,
        done=done,
        first=shown_step(steps[0].step) if steps else None,
        last=shown_step(steps[-1].step) if steps else None,
    )


def _metrics(
    course: Course, old: Sequence[CompletedStep], new: Sequence[CompletedStep]
) -> list[MetricChange]:
    names = dict.fromkeys((*USUAL, *sorted(course.names)))
    changes = [
        _metric(name, _values(course, old, name), _values(course, new, name))
        for name in names
        if name in course.names
    ]
    present = [each for each in changes if each.before is not None or each.after is not None]
    return sorted(present, key=lambda each: (not each.marked, -each.size))


def _values(course: Course, steps: Sequence[CompletedStep], name: str) -> list[float]:
    values = (course.value(row, name) for row in steps)
    return [value for value in values if value is not None and isfinite(value)]


def _metric(name: str, old: Sequence[float], new: Sequence[float]) -> MetricChange:
    before = fmean(old) if old else None
    after = fmean(new) if new else None
    spread = fmean([pstdev(values) for values in (old, new) if values] or [0.0])
    change = None
    if before is not None and after is not None:
        change = 0.0 if isclose(before, after, rel_tol=_SAME) else after - before
    return MetricChange(
        name=name,
        meaning=meaning_of(name),
        before=before,
        after=after,
        change=change,
        spread=spread,
        marked=abs(change or 0.0) > spread,
    )


def _counts(
    course: Course, before: PictureAt, after: PictureAt
) -> Mapping[str, Sequence[CountChange]]:
    versions = dict.fromkeys((*before.picture.control.versions, *after.picture.control.versions))
    return {
        "steps": [
            *counts_changed(_steps_done(course, before.end), _steps_done(course, after.end)),
            *(
                _count(
                    f"version of {policy or 'the policy'}",
                    before.picture.control.versions.get(policy),
                    after.picture.control.versions.get(policy),
                )
                for policy in versions
            ),
        ],
        "groups": counts_changed(_groups(before.picture.control), _groups(after.picture.control)),
        "sessions": counts_changed(_sessions(before.picture), _sessions(after.picture)),
        "all sessions together": counts_changed(_work(before.picture), _work(after.picture)),
    }


def _steps_done(course: Course, end: int) -> Mapping[str, int]:
    """Return how many steps count, by policy."""
    policies = course.of_policy("", end).policies
    return {
        f"steps done of {policy or 'the policy'}": len(course.of_policy(policy, end).steps)
        for policy in policies
    }


def _groups(control: ControlFold) -> Mapping[str, int]:
    under_way = Counter(group.state for group in control.groups.values())
    totals = {"admitted": "GroupAdmitted", "consumed": "GroupConsumed", "dropped": "GroupDropped"}
    return {
        **{f"{state} now": under_way[state] for state in ("running", "ready", "in batch")},
        **{f"{name} so far": control.counts.get(kind, 0) for name, kind in totals.items()},
    }


def _sessions(picture: RunPicture) -> Mapping[str, int]:
    rows = (row for fold in picture.sessions.values() for row in fold.rows())
    return dict(sorted(Counter(row.status for row in rows).items()))


def _work(picture: RunPicture) -> Mapping[str, int]:
    sums: Counter[str] = Counter()
    for fold in picture.sessions.values():
        for row in fold.rows():
            sums["turns completed"] += row.turns
            sums["tokens sampled in them"] += row.tokens
            sums["hand-overs"] += row.hand_overs
            sums["turns failed"] += row.failed_turns
    names = ("turns completed", "tokens sampled in them", "hand-overs", "turns failed")
    return {name: sums[name] for name in names}


def _workers(before: ControlFold, after: ControlFold) -> Iterator[WorkerChange]:
    for name in sorted({*before.workers, *after.workers}):
        old = _does(before.workers.get(name))
        new = _does(after.workers.get(name))
        yield WorkerChange(name, old, new, old != new)


def _does(worker: WorkerState | None) -> str:
    if worker is None:
        return ""
    version = "" if worker.version is None else f"version {worker.version}"
    return ", ".join(filter(None, (worker.role or "no role", worker.phase, version)))


def _starts(course: Course, first: int, end: int) -> Iterator[TrainerStart]:
    """Yield the trainer starts in a range of offsets, by policy and in log order."""
    whole = course.of_policy("", end)
    for policy in whole.policies:
        starts = starts_of(whole.events, policy)
        earlier = [None, *(start for start, _ in starts)]
        for before, (start, item) in zip(earlier, starts, strict=False):
            if item.offset >= first:
                yield TrainerStart(
                    policy=policy,
                    step=start.step,
                    at_ms=item.timestamp_ms,
                    offset=item.offset,
                    settings={} if before is None else changed_settings(before, start),
                )
