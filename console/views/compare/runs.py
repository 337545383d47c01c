"""Two runs beside each other over their common steps, with their settings. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isclose, isfinite
from statistics import fmean
from typing import Any

import orjson

from seamlessflow.console.models.course import CompletedStep, Course, PolicyCourse, starts_of
from seamlessflow.console.views.curves import USUAL
from seamlessflow.recorded.retrain.recorded_run import settings_by_path
from seamlessflow.schemas.tokens import shown_step
from seamlessflow.trainer.data.figures.chances import ConfidenceInterval
from seamlessflow.trainer.data.figures.significance import bootstraps
from seamlessflow.trainer.metrics.names import meaning_of

_LONGEST = 200
_SAME = 1e-12
MISSING = "not set"


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricBeside:
    """A metric's means in both runs over the same steps."""

    name: str
    meaning: str
    steps: int
    """Compared steps in which both runs have it."""
    mine: float
    theirs: float
    change: float
    """Mean over the steps: this run's value minus the other run's."""
    low: float | None
    """Ends of the difference's 95 % interval; None if all steps differ by the same amount."""
    high: float | None
    marked: bool
    """True if the interval leaves out 0, or if several steps all differ by the same amount."""

    @property
    def size(self) -> float:
        """Difference divided by its interval's width; infinite without an interval."""
        if self.low is None or self.high is None:
            return float("inf") if self.change else 0.0
        return abs(self.change) / (self.high - self.low)


@dataclass(frozen=True, slots=True)
class SettingBeside:
    """A setting that differs, as JSON."""

    name: str
    mine: str
    theirs: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunsCompared:
    """Both runs over their common steps."""

    run: str
    """Name of the other run."""
    policy: str
    policies: Sequence[str]
    policy_beside: str
    """The other run's policy: the one with this name, or its first."""
    window: int
    done: int
    done_beside: int
    first: int | None
    """First and last compared step, from 1; None without a common step."""
    last: int | None
    steps: int
    newest: int | None
    """Newest step that both have."""
    metrics: Sequence[MetricBeside]
    """The clearest differences first."""
    only_mine: Sequence[str]
    """Metrics that the other run has in none of these steps."""
    only_theirs: Sequence[str]
    settings: Sequence[SettingBeside]
    without_settings: Sequence[str]
    """Runs, as `this run` or by name, whose settings are not on the log."""


StepPair = tuple[CompletedStep, CompletedStep]


def runs_compared(
    course: Course, end: int, policy: str, beside: tuple[str, Course], step: int | None, window: int
) -> RunsCompared:
    """Return a course's run, up to an offset on `control`, beside another run.

    `beside`: the other run's name and course. `step`: last step that counts, from 1; None for the
    newest that both have.
    """
    run, other = beside
    mine = course.of_policy(policy, end)
    theirs = other.beside(mine.policy)
    common = _common(mine.steps, theirs.steps)
    pairs = [pair for pair in common if step is None or shown_step(pair[0].step) <= step]
    pairs = pairs[-window:]
    names_of_mine = _present(course, [row for row, _ in pairs])
    names_of_theirs = _present(other, [row for _, row in pairs])
    in_both = [name for name in names_of_mine if name in names_of_theirs]
    settings = [_settings(mine, pairs[-1][0] if pairs else None)]
    settings.append(_settings(theirs, pairs[-1][1] if pairs else None))
    return RunsCompared(
        run=run,
        policy=mine.policy,
        policies=mine.policies,
        policy_beside=theirs.policy,
        window=window,
        done=len(mine.steps),
        done_beside=len(theirs.steps),
        first=shown_step(pairs[0][0].step) if pairs else None,
        last=shown_step(pairs[-1][0].step) if pairs else None,
        steps=len(pairs),
        newest=shown_step(common[-1][0].step) if common else None,
        metrics=_metrics(course, other, pairs, in_both),
        only_mine=[name for name in names_of_mine if name not in names_of_theirs],
        only_theirs=[name for name in names_of_theirs if name not in names_of_mine],
        settings=list(_differing(settings[0] or {}, settings[1] or {})) if all(settings) else [],
        without_settings=[
            name for name, has in zip(("this run", run), settings, strict=True) if not has
        ],
    )


def _common(mine: Sequence[CompletedStep], theirs: Sequence[CompletedStep]) -> list[StepPair]:
    by_number = {row.step: row for row in theirs}
    return [(row, by_number[row.step]) for row in mine if row.step in by_number]


def _present(course: Course, steps: Sequence[CompletedStep]) -> list[str]:
    """Return the metrics that any of the steps has, the usual ones first."""
    names = {name for row in steps for name in course.metrics(row)}
    return [name for name in dict.fromkeys((*USUAL, *sorted(names))) if name in names]


def _metrics(
    course: Course, other: Course, pairs: Sequence[StepPair], names: Sequence[str]
) -> list[MetricBeside]:
    values = {name: list(_values(course, other, pairs, name)) for name in names}
    values = {name: both for name, both in values.items() if both}
    differences = [[_difference(mine, theirs) for mine, theirs in both] for both in values.values()]
    compared = [
        _metric(name, both, row, interval)
        for (name, both), row, interval in zip(
            values.items(), differences, bootstraps(differences), strict=True
        )
    ]
    return sorted(compared, key=lambda each: (not each.marked, -each.size))


def _values(
    course: Course, other: Course, pairs: Sequence[StepPair], name: str
) -> Iterator[tuple[float, float]]:
    """Yield a metric's values in both runs, for each step in which both have it."""
    for mine, theirs in pairs:
        value = course.value(mine, name)
        beside = other.value(theirs, name)
        if value is not None and beside is not None and isfinite(value) and isfinite(beside):
            yield value, beside


def _difference(mine: float, theirs: float) -> float:
    return 0.0 if isclose(mine, theirs, rel_tol=_SAME) else mine - theirs


def _metric(
    name: str,
    both: Sequence[tuple[float, float]],
    differences: Sequence[float],
    interval: ConfidenceInterval | None,
) -> MetricBeside:
    change = fmean(differences)
    alike = interval is None and change != 0 and len(both) > 1
    apart = interval is not None and not interval.low <= 0 <= interval.high
    return MetricBeside(
        name=name,
        meaning=meaning_of(name),
        steps=len(both),
        mine=fmean(mine for mine, _ in both),
        theirs=fmean(theirs for _, theirs in both),
        change=change,
        low=None if interval is None else interval.low,
        high=None if interval is None else interval.high,
        marked=alike or apart,
    )


def _settings(course: PolicyCourse, last: CompletedStep | None) -> Mapping[str, Any]:
    """Return the settings under which a step was executed, else the newest; empty without any."""
    starts = [start for start, _ in starts_of(course.events, course.policy)]
    of_step = [start for start in starts if last is not None and start.lineage == last.lineage]
    chosen = (of_step or starts)[-1:]
    return settings_by_path(chosen[0]) if chosen else {}


def _differing(mine: Mapping[str, Any], theirs: Mapping[str, Any]) -> Iterator[SettingBeside]:
    for name in sorted({*mine, *theirs}):
        value = _text(mine, name)
        beside = _text(theirs, name)
        if value != beside:
            yield SettingBeside(name, _short(value), _short(beside))


def _text(settings: Mapping[str, Any], name: str) -> str:
    return orjson.dumps(settings[name]).decode() if name in settings else MISSING


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
