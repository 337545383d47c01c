"""An optimizer step's page: its groups side by side, its figures, what was left out. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from statistics import fmean

from seamlessflow.console.models.course import CompletedStep
from seamlessflow.console.views.chart import nice
from seamlessflow.console.views.query import Query
from seamlessflow.console.views.session.texts import message_row
from seamlessflow.console.views.unusual import UnusualFigure, unusual_figures
from seamlessflow.infra.kafka.client import Received
from seamlessflow.recorded.trace.row import of_kind
from seamlessflow.schemas import records as r
from seamlessflow.schemas.tokens import shown_step
from seamlessflow.trainer.metrics.names import meaning_of
from seamlessflow.trainer.metrics.phases import PHASES
from seamlessflow.trainer.metrics.unlearned import cause_of, masked_tokens
from seamlessflow.trainer.steps.trained import TrainedRun

_BINS = 20
_PROMPT = 160
"""Most characters that a group's line shows from a prompt."""
_FIGURES: Mapping[str, Sequence[str]] = {
    "rewards": ("reward_mean", "reward_std", "return/p10", "return/p50", "return/p90"),
    "update": ("loss", "grad_norm", "clip_fraction", "entropy", "ratio_mean", "policy_kl"),
    "off-policy": (
        *("staleness_mean", "staleness_max", "mismatch_mean", "mismatch_max", "mismatch_kl"),
        "effective_sample_size",
    ),
    "tokens": ("tokens_trained", "tokens_masked", "trained_tokens/mean", "update_tokens_per_s"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRecords:
    """A step's records, from the log and the run's files."""

    policy: str
    step: int
    """From 0, as records count."""
    completed: CompletedStep | None
    metrics: Mapping[str, float]
    commits: Sequence[tuple[r.StepCommitted, Received]]
    """The step's executions with their places, the newest at the end."""
    groups: Mapping[str, Sequence[Received]]
    """`GroupAdmitted`, `GroupReady` and `GroupDropped` by group."""
    drops: Sequence[Received]
    """`GroupDropped` since the previous step."""
    runs: Sequence[TrainedRun] | None
    """Rows from its file of trained tokens; None without the file."""
    last: int
    """Number of the newest completed step."""
    before: Sequence[Mapping[str, float]]
    """The earlier steps' metrics, in step order."""
    prompts: Mapping[str, r.TurnStarted]
    """For each group, the first turn of one of its sessions, as far as it was read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepQuery:
    """Range of returns: sessions with a return in it are marked."""

    least: float | None = None
    most: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionCell:
    """A session in a group."""

    session_id: str
    value: float | None
    """Its return; None if the log does not say it."""
    advantage: float | None
    """Mean over its trained tokens; None without any, or without the file."""
    trained: int
    """Its tokens in the loss."""
    turns: int | None
    marked: bool
    """True if its return is in the range that was asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchGroup:
    """A group in the step's batch."""

    group_id: str
    task_id: str
    admitted_ms: int | None
    ready_ms: int | None
    admitted_version: int | None
    """Newest version when it was admitted."""
    oldest_version: int | None
    """Oldest version that sampled one of its tokens."""
    mean: float | None
    deviation: float | None
    filtered: str
    """Rule that kept it out of the loss; empty without one."""
    origin: str
    """`new`, or the pool that it comes from, or how often it was trained before."""
    prompt: str
    """Beginning of the last message in its first session's first prompt; empty if not read."""
    sessions: Sequence[SessionCell]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReturnBin:
    """A bin in a histogram of returns: from `least` to below `most`."""

    least: float
    most: float
    sessions: int
    marked: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One of the step's metrics."""

    name: str
    value: float
    meaning: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskedTokens:
    """The batch's sampled tokens that did not enter the loss, for one reason."""

    reason: str
    tokens: int
    setting: str
    """Setting that would change it; empty if none does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DroppedGroup:
    """A group that was dropped since the previous step."""

    group_id: str
    reason: str
    detail: str
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPage:
    """The whole page."""

    policy: str
    step: int
    """Counted from 1, as people see steps."""
    before: int | None
    after: int | None
    """Numbers of the steps before and after it."""
    version: int | None
    lineage: str
    executions: int
    """Execution count; later executions replace earlier ones."""
    at_ms: int | None
    commit_offset: int | None
    completed_offset: int | None
    phases: Mapping[str, float]
    """Seconds by phase."""
    unusual: Sequence[UnusualFigure]
    """Metrics that stand out from the steps before."""
    figures: Mapping[str, Sequence[Figure]]
    others: Sequence[Figure]
    bins: Sequence[ReturnBin]
    groups: Sequence[BatchGroup]
    sessions: int
    marked: int
    masked: Sequence[MaskedTokens]
    dropped: Sequence[DroppedGroup]
    notices: Sequence[str]


def step_query(query: Query) -> StepQuery:
    """Return the sessions that a query asks for. Raises `QueryRejected`."""
    return StepQuery(least=query.real("least"), most=query.real("most"))


def step_page(records: StepRecords, query: StepQuery) -> StepPage:
    """Return the page."""
    commit, item = records.commits[-1] if records.commits else (None, None)
    lines = list(_groups(commit, records, query)) if commit is not None else []
    cells = [cell for line in lines for cell in line.sessions]
    shown = {name for names in _FIGURES.values() for name in names} | set(PHASES)
    completed = records.completed
    return StepPage(
        policy=records.policy,
        step=shown_step(records.step),
        before=records.step or None,
        after=shown_step(records.step + 1) if records.step < records.last else None,
        version=commit.version if commit is not None else getattr(completed, "version", None),
        lineage=commit.lineage if commit is not None else "",
        executions=len(records.commits),
        at_ms=item.timestamp_ms if item is not None else None,
        commit_offset=item.offset if item is not None else None,
        completed_offset=completed.offset if completed is not None else None,
        phases={name: records.metrics[name] for name in PHASES if name in records.metrics},
        unusual=unusual_figures(records.metrics, records.before),
        figures={title: _figures(names, records) for title, names in _FIGURES.items()},
        others=_figures(sorted(set(records.metrics) - shown), records),
        bins=_bins([cell.value for cell in cells if cell.value is not None], query),
        groups=lines,
        sessions=len(cells),
        marked=sum(cell.marked for cell in cells),
        masked=_masked(records.metrics),
        dropped=[
            DroppedGroup(
                group_id=drop.group_id, reason=drop.reason, detail=drop.detail, offset=place.offset
            )
            for drop, place in of_kind(records.drops, r.GroupDropped)
        ],
        notices=list(_notices(records)),
    )


def mean_advantages(runs: Iterable[TrainedRun]) -> Mapping[str, float]:
    """Return each session's mean advantage over its trained tokens."""
    sums: dict[str, list[float]] = {}
    for run in runs:
        values = (
            run.advantage if isinstance(run.advantage, list) else [run.advantage] * len(run.ids)
        )
        sums.setdefault(run.session, []).extend(values)
    return {session: fmean(values) for session, values in sums.items() if values}


def _groups(
    commit: r.StepCommitted, records: StepRecords, query: StepQuery
) -> Iterator[BatchGroup]:
    advantages = mean_advantages(records.runs or ())
    for group in commit.groups:
        items = records.groups.get(group.group_id, ())
        ready = next(of_kind(items, r.GroupReady), (None, None))
        sessions = [
            SessionCell(
                session_id=session,
                value=value,
                advantage=advantages.get(session),
                trained=commit.trained_tokens.get(session, 0),
                turns=turns,
                marked=_is_marked(value, query),
            )
            for session, value, turns in _members(group, ready[0])
        ]
        admission = next(of_kind(items, r.GroupAdmitted), (None, None))
        prompt = _beginning(records.prompts.get(group.group_id))
        yield _line(group, admission, ready, sessions, prompt)


def _members(
    group: r.StepGroup, ready: r.GroupReady | None
) -> Iterator[tuple[str, float | None, int | None]]:
    """Yield a group's sessions with their returns and turn counts; None if the log lacks them."""
    names = ready.sessions if ready is not None else ()
    returns = ready.returns if ready is not None else ()
    turns = ready.turns if ready is not None else ()
    value_of = dict(zip(names, returns, strict=False))
    turns_of = dict(zip(names, turns, strict=False))
    for session in group.sessions:
        yield session, value_of.get(session), turns_of.get(session)


def _line(
    group: r.StepGroup,
    admission: tuple[r.GroupAdmitted, Received] | tuple[None, None],
    end: tuple[r.GroupReady, Received] | tuple[None, None],
    sessions: Sequence[SessionCell],
    prompt: str,
) -> BatchGroup:
    admitted, admitted_item = admission
    ready, ready_item = end
    return BatchGroup(
        group_id=group.group_id,
        task_id=admitted.task_id if admitted is not None else "",
        admitted_ms=admitted_item.timestamp_ms if admitted_item is not None else None,
        ready_ms=ready_item.timestamp_ms if ready_item is not None else None,
        admitted_version=admitted.version if admitted is not None else None,
        oldest_version=ready.version_min if ready is not None else None,
        mean=ready.reward_mean if ready is not None else None,
        deviation=ready.reward_std if ready is not None else None,
        filtered=group.filtered,
        origin=_origin(group),
        prompt=prompt,
        sessions=sessions,
    )


def _beginning(turn: r.TurnStarted | None) -> str:
    """Return the beginning of a prompt's last message, in one line."""
    if turn is None or not turn.new_messages:
        return ""
    return " ".join(message_row(turn.new_messages[-1]).text[:_PROMPT].split())


def _origin(group: r.StepGroup) -> str:
    if group.pool:
        return group.pool
    return f"trained {group.reused} times before" if group.reused else "new"


def _is_marked(value: float | None, query: StepQuery) -> bool:
    if value is None or (query.least is None and query.most is None):
        return False
    above = query.least is None or value >= query.least
    return above and (query.most is None or value < query.most)


def _figures(names: Iterable[str], records: StepRecords) -> Sequence[Figure]:
    return [
        Figure(name=name, value=records.metrics[name], meaning=meaning_of(name))
        for name in names
        if name in records.metrics
    ]


def _bins(values: Sequence[float], query: StepQuery) -> Sequence[ReturnBin]:
    values = [value for value in values if isfinite(value)]
    if not values:
        return []
    apart = nice((max(values) - min(values)) / _BINS) if max(values) > min(values) else 0.1
    numbers = [int(value / apart // 1) for value in values]
    return [
        ReturnBin(
            least=round(number * apart, 12),
            most=round((number + 1) * apart, 12),
            sessions=numbers.count(number),
            marked=_is_marked(round(number * apart, 12), query),
        )
        for number in range(min(numbers), max(numbers) + 1)
    ]


def _masked(metrics: Mapping[str, float]) -> Sequence[MaskedTokens]:
    return [
        MaskedTokens(reason=reason, tokens=count, setting=cause_of(reason))
        for reason, count in masked_tokens([metrics]).items()
        if count
    ]


def _notices(records: StepRecords) -> Iterator[str]:
    if not records.commits:
        yield "The log has its completion and not its commit: retention may have removed it."
    elif records.completed is None:
        yield "It is committed. Its metrics come once its weights are out."
    if records.commits and records.runs is None:
        yield "No file of its trained tokens is here, so it has no advantages: trainer.trained_dir"
    if len(records.commits) > 1:
        yield (
            f"It was executed {len(records.commits)} times: a trainer went on from a checkpoint "
            "before it. The newest execution is shown."
        )
