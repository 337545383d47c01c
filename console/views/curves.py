"""The page Curves: metrics over steps, evaluation sets, and what happened between them. Pure."""

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from seamlessflow.console.models.course import CompletedStep, Course, starts_of
from seamlessflow.console.views.chart import (
    ChartArea,
    ChartFrame,
    Point,
    areas_of,
    frame_around,
    path_of,
    smoothed,
    thinned,
)
from seamlessflow.console.views.query import Query, QueryRejected
from seamlessflow.infra.kafka.client import Received
from seamlessflow.recorded.retrain.recorded_run import changed_settings
from seamlessflow.recorded.trace.row import of_kind
from seamlessflow.schemas import records as r
from seamlessflow.schemas.tokens import shown_step
from seamlessflow.trainer.metrics.names import meaning_of

USUAL = (
    *("reward_mean", "reward_std", "entropy", "grad_norm", "policy_kl", "clip_fraction"),
    *("mismatch_mean", "staleness_mean", "prompt_tokens/mean", "begun_tokens/mean"),
    *("tokens_per_s", "batch_s", "update_s"),
)
MOST_CURVES = 24
NO_RUNS: Mapping[str, Course] = {}
_NEWEST = 30
_MOST_CHANGES = 3
_WITHIN = 1.96
"""Standard errors between a mean and each end of its 95 % interval."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CurvesQuery:
    """The question behind the page: which policy's metrics, how smooth, over which steps."""

    policy: str = ""
    metrics: tuple[str, ...] = ()
    """Empty: the usual metrics."""
    smooth: float = 0.0
    """Weight that the previous average has."""
    first: int | None = None
    """First step that is shown, from 1."""
    last: int | None = None


@dataclass(frozen=True, slots=True)
class CurveBeside:
    """The same metric in another run."""

    run: str
    number: int
    """From 1, for its colour."""
    points: Sequence[Point]
    """Smoothed like the curve beside it."""
    line: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricCurve:
    """A metric over the steps."""

    name: str
    meaning: str
    points: Sequence[Point]
    """Steps from 1, and values as the trainer reported them."""
    smooth: Sequence[Point]
    frame: ChartFrame
    line: str
    smooth_line: str
    areas: Sequence[ChartArea]
    beside: Sequence[CurveBeside]


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationPoint:
    """A version's evaluation."""

    step: int
    """Steps that were done before it."""
    version: int
    reward: float
    low: float
    high: float
    """Ends of the 95 % interval: 1.96 standard errors around the mean."""
    groups: int
    sessions: int
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationCurve:
    """An evaluation set over the steps."""

    split: str
    points: Sequence[EvaluationPoint]
    frame: ChartFrame
    line: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CourseMark:
    """A thing that happened behind a step: `resumed`, `settings changed` or `lost`."""

    step: int
    kind: str
    text: str
    at_ms: int
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NewestStep:
    """A row of the table: a step, and its values for the curves that are shown."""

    step: int
    version: int
    at_ms: int
    offset: int
    values: Sequence[float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class CurvesPage:
    """The whole page. Steps are numbered from 1, as people see them."""

    policy: str
    policies: Sequence[str]
    done: int
    smooth: float
    metrics: Sequence[str]
    """Names of the curves."""
    others: Mapping[str, Sequence[str]]
    """All further metrics that the run has, by family."""
    beside: Sequence[str]
    """Names of the runs beside it."""
    curves: Sequence[MetricCurve]
    evaluations: Sequence[EvaluationCurve]
    marks: Sequence[CourseMark]
    newest: Sequence[NewestStep]


def curves_query(query: Query) -> CurvesQuery:
    """Return the curves that a query asks for. Raises `QueryRejected`."""
    names = (name.strip() for name in query.text("metrics").split(","))
    metrics = tuple(filter(None, dict.fromkeys(names)))
    if len(metrics) > MOST_CURVES:
        raise QueryRejected("metrics", f"{len(metrics)} names", f"at most {MOST_CURVES} at once")
    smooth = query.real("smooth") or 0.0
    if not 0 <= smooth < 1:
        raise QueryRejected("smooth", query.text("smooth"), "must be at least 0 and below 1")
    return CurvesQuery(
        policy=query.text("policy"),
        metrics=metrics,
        smooth=smooth,
        first=query.number("first", 1),
        last=query.number("last", 1),
    )


def curves_page(
    course: Course, end: int, query: CurvesQuery, beside: Mapping[str, Course] = NO_RUNS
) -> CurvesPage:
    """Return the page at a moment, up to an offset on `control`.

    `beside`: other runs by name, which are shown whole.
    """
    mine = course.of_policy(query.policy, end)
    policy = mine.policy
    shown = [row for row in mine.steps if _within(shown_step(row.step), query)]
    names = _names(course, shown, query)
    others = {run: (other, _steps_beside(other, policy, query)) for run, other in beside.items()}
    return CurvesPage(
        policy=policy,
        policies=mine.policies,
        done=len(mine.steps),
        smooth=query.smooth,
        metrics=names,
        others=_others(course, names),
        beside=list(beside),
        curves=[curve for name in names if (curve := _curve(course, shown, name, query, others))],
        evaluations=list(_evaluations(mine.events, shown, policy, query)),
        marks=[
            mark for mark in _marks(mine.events, mine.every, policy) if _within(mark.step, query)
        ],
        newest=[_newest(course, row, names) for row in reversed(shown[-_NEWEST:])],
    )


def _within(step: int, query: CurvesQuery) -> bool:
    return (query.first or 0) <= step and (query.last is None or step <= query.last)


def _names(course: Course, steps: Sequence[CompletedStep], query: CurvesQuery) -> Sequence[str]:
    if query.metrics:
        return query.metrics
    newest = steps[-1] if steps else None
    present = course.metrics(newest) if newest is not None else {}
    return [name for name in USUAL if name in present]


def _others(course: Course, names: Sequence[str]) -> Mapping[str, Sequence[str]]:
    families: dict[str, list[str]] = {}
    for name in sorted(set(course.names) - set(names)):
        family, slash, _ = name.partition("/")
        families.setdefault(family if slash else "", []).append(name)
    return families


def _steps_beside(course: Course, policy: str, query: CurvesQuery) -> list[CompletedStep]:
    """Return another run's steps, under the same policy or under its first one."""
    rows = course.beside(policy).steps
    return [row for row in rows if _within(shown_step(row.step), query)]


def _points(course: Course, steps: Sequence[CompletedStep], name: str) -> list[Point]:
    values = ((shown_step(row.step), course.value(row, name)) for row in steps)
    return [(step, value) for step, value in values if value is not None]


def _curve(
    course: Course,
    steps: Sequence[CompletedStep],
    name: str,
    query: CurvesQuery,
    others: Mapping[str, tuple[Course, Sequence[CompletedStep]]],
) -> MetricCurve | None:
    points = _points(course, steps, name)
    if not points:
        return None
    beside = {run: _points(other, rows, name) for run, (other, rows) in others.items()}
    if query.smooth:
        beside = {run: list(smoothed(line, query.smooth)) for run, line in beside.items()}
    smooth = smoothed(points, query.smooth) if query.smooth else []
    ends = [step for line in (points, *beside.values()) for step, _ in (*line[:1], *line[-1:])]
    ends += [shown_step(steps[0].step), shown_step(steps[-1].step)]
    frame = frame_around([points, *beside.values()], min(ends), max(ends))
    few = thinned(points)
    return MetricCurve(
        name=name,
        meaning=meaning_of(name),
        points=points,
        smooth=smooth,
        frame=frame,
        line=path_of(frame, few),
        smooth_line=path_of(frame, thinned(smooth)),
        areas=areas_of(frame, few),
        beside=[
            CurveBeside(run, number, line, path_of(frame, thinned(line)))
            for number, (run, line) in enumerate(beside.items(), 1)
        ],
    )


def _evaluations(
    events: Sequence[Received], steps: Sequence[CompletedStep], policy: str, query: CurvesQuery
) -> Iterator[EvaluationCurve]:
    for split, points in sorted(_by_split(events, policy).items()):
        shown = [point for point in points if _within(point.step, query)]
        if not shown:
            continue
        ends = [(point.step, value) for point in shown for value in (point.low, point.high)]
        numbers = [*(shown_step(row.step) for row in steps), *(point.step for point in shown)]
        frame = frame_around([ends], min(numbers), max(numbers))
        line = path_of(frame, [(point.step, point.reward) for point in shown])
        yield EvaluationCurve(split=split, points=shown, frame=frame, line=line)


def _by_split(events: Sequence[Received], policy: str) -> Mapping[str, Sequence[EvaluationPoint]]:
    """Return the evaluations by their set. A restart at a step undoes those after it."""
    splits: dict[str, list[EvaluationPoint]] = {}
    for item in events:
        record = item.record
        if isinstance(record, r.EvaluationCompleted) and record.reward_mean is not None:
            point = _evaluated(item, record, record.reward_mean)
            splits.setdefault(record.split, []).append(point)
        elif isinstance(record, r.LineageStarted) and record.policy == policy:
            splits = {
                split: [point for point in points if point.step <= record.step]
                for split, points in splits.items()
            }
    return splits


def _evaluated(item: Received, record: r.EvaluationCompleted, reward: float) -> EvaluationPoint:
    around = _WITHIN * (record.reward_error or 0.0)
    return EvaluationPoint(
        step=record.step,
        version=record.version,
        reward=reward,
        low=reward - around,
        high=reward + around,
        groups=record.groups,
        sessions=record.sessions,
        offset=item.offset,
    )


def _marks(
    events: Sequence[Received], steps: Sequence[CompletedStep], policy: str
) -> Iterator[CourseMark]:
    for (before, _), (start, item) in pairwise(starts_of(events, policy)):
        yield _mark(item, start.step, "resumed", f"goes on behind step {start.step}")
        changes = changed_settings(before, start)
        if changes:
            yield _mark(item, start.step, "settings changed", _listed(changes))
    mine = [row for row in steps if row.policy == policy]
    for lost, item in of_kind(events, r.WorkerLost):
        done = bisect_left(mine, item.offset, key=lambda row: row.offset)
        step = shown_step(mine[done - 1].step) if done else 0
        yield _mark(item, step, "lost", f"{lost.process} of {lost.worker}: {lost.reason}")


def _mark(item: Received, step: int, kind: str, text: str) -> CourseMark:
    return CourseMark(step=step, kind=kind, text=text, at_ms=item.timestamp_ms, offset=item.offset)


def _listed(changes: Mapping[str, str]) -> str:
    lines = [f"{name}: {change}" for name, change in changes.items()]
    further = len(lines) - _MOST_CHANGES
    shown = ", ".join(lines[:_MOST_CHANGES])
    return f"{shown} and {further} more" if further > 0 else shown


def _newest(course: Course, row: CompletedStep, names: Sequence[str]) -> NewestStep:
    return NewestStep(
        step=shown_step(row.step),
        version=row.version,
        at_ms=row.at_ms,
        offset=row.offset,
        values=[course.value(row, name) for name in names],
    )
