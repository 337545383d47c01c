"""A run's report: one page with what people ask when it is over. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from seamlessflow.console.log.run_log import RunPicture
from seamlessflow.console.models.course import Course, policies_of, starts_of
from seamlessflow.console.models.sessions import SessionRow
from seamlessflow.console.models.warnings import RunWarning
from seamlessflow.console.views.curves import CurvesPage, CurvesQuery, curves_page
from seamlessflow.console.views.session.token_range import TurnMessages
from seamlessflow.recorded.retrain.recorded_run import settings_by_path
from seamlessflow.trainer.metrics.symptoms import symptoms
from seamlessflow.trainer.metrics.unlearned import masked_tokens

_OF_EACH = 2
_SMOOTH_FROM = 30
"""With so many steps or more, the curves are also shown as averages."""
_WEIGHT = 0.9
_TRAIN = "train"


@dataclass(frozen=True, slots=True)
class ChosenSession:
    """A session that is worth reading, and why."""

    why: str
    row: SessionRow


@dataclass(frozen=True, slots=True)
class ExampleSession:
    """A chosen session with its messages."""

    why: str
    row: SessionRow
    turns: Sequence[TurnMessages]
    further: int
    """Turns that are left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyReport:
    """Report on what one policy learned."""

    policy: str
    curves: CurvesPage
    symptoms: Sequence[str]
    masked: Mapping[str, int]
    """Sampled tokens in all its steps that were not trained, by reason."""
    trained: int
    """Tokens that entered the loss, over all its steps."""
    settings: Mapping[str, Any]
    """Settings that its last trainer had, by path."""
    finished: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    """The whole report."""

    began_ms: int
    ended_ms: int
    records: int
    sessions: int
    statuses: Mapping[str, int]
    """Sessions by status."""
    policies: Sequence[PolicyReport]
    warnings: Sequence[RunWarning]
    examples: Sequence[ExampleSession]


def policy_reports(course: Course, end: int, finished: Iterable[str]) -> list[PolicyReport]:
    """Return a report for each trained policy, up to an offset on `control`."""
    steps = course.steps(end)
    events = course.events(end)
    over = set(finished)
    reports = []
    for policy in policies_of(steps, events):
        kept = course.of_policy(policy, end).steps
        metrics = [course.metrics(row) for row in kept]
        smooth = _WEIGHT if len(kept) >= _SMOOTH_FROM else 0.0
        starts = starts_of(events, policy)
        reports.append(
            PolicyReport(
                policy=policy,
                curves=curves_page(course, end, CurvesQuery(policy=policy, smooth=smooth)),
                symptoms=symptoms(metrics),
                masked=masked_tokens(metrics),
                trained=round(sum(step.get("tokens_trained", 0.0) for step in metrics)),
                settings=settings_by_path(starts[-1][0]) if starts else {},
                finished=policy in over,
            )
        )
    return reports


def chosen_sessions(picture: RunPicture) -> list[ChosenSession]:
    """Return the best, the worst and the strangest training sessions, each once."""
    rows = [
        row
        for fold in picture.sessions.values()
        for row in fold.rows()
        if row.purpose == _TRAIN and row.finalized_ms is not None
    ]
    rewarded = [(row.reward, row) for row in rows if row.reward is not None]
    by_reward = [row for _, row in sorted(rewarded, key=lambda pair: pair[0])]
    kinds: Sequence[tuple[str, Sequence[SessionRow]]] = (
        ("one of the best", by_reward[::-1][:_OF_EACH]),
        ("one of the worst", by_reward[:_OF_EACH]),
        ("the longest", _largest(rows, [row.tokens for row in rows])),
        ("most hand-overs between workers", _largest(rows, [row.hand_overs for row in rows])),
        ("most failed turns", _largest(rows, [row.failed_turns for row in rows])),
    )
    chosen: dict[str, ChosenSession] = {}
    for why, candidates in kinds:
        for row in candidates:
            chosen.setdefault(row.session_id, ChosenSession(why, row))
    return list(chosen.values())


def run_report(
    picture: RunPicture, course: Course, end: int, examples: Sequence[ExampleSession]
) -> RunReport:
    """Return a run's report at a moment, up to an offset on `control`."""
    rows = [row for fold in picture.sessions.values() for row in fold.rows()]
    statuses: dict[str, int] = {}
    for row in rows:
        statuses[row.status] = statuses.get(row.status, 0) + 1
    return RunReport(
        began_ms=min((row.opened_ms for row in rows), default=picture.at_ms),
        ended_ms=picture.at_ms,
        records=sum(picture.cut.values()),
        sessions=len(rows),
        statuses=dict(sorted(statuses.items())),
        policies=policy_reports(course, end, picture.control.finished),
        warnings=picture.control.warnings,
        examples=examples,
    )


def _largest(rows: Sequence[SessionRow], figures: Sequence[int]) -> list[SessionRow]:
    """Return the row with the largest figure, if that is above 0."""
    most = max(figures, default=0)
    return [row for row, figure in zip(rows, figures, strict=True) if figure == most > 0][:1]
