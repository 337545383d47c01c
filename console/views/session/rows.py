"""A session's turns, tree and steps, as rows of its page. Pure; called by `page.py`."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from seamlessflow.console.views.session.columns import TokenColumns
from seamlessflow.console.views.session.folded import FoldedSession, Stretch
from seamlessflow.console.views.session.reason import TokenReason, place_of
from seamlessflow.console.views.session.reasons import ExplainedTokens
from seamlessflow.console.views.session.training import BatchStep
from seamlessflow.consumers.trajectories.sessions.session import Turn
from seamlessflow.schemas import records as r
from seamlessflow.schemas.arrays import Bools
from seamlessflow.schemas.records import TrajectoryNode
from seamlessflow.schemas.tokens import shown_step


@dataclass(frozen=True, slots=True, kw_only=True)
class StretchRow:
    """A part of an answer that one worker sampled in one dispatch."""

    worker: str
    dispatch: int
    begin: int
    """First token, counted in the session."""
    end: int
    versions: tuple[str, ...]
    """Versions that sampled it, in order; `3-4?` is one version in this range."""
    because: str
    """Reason for the dispatch."""
    interrupted: str
    """Reason why the worker handed the turn back; empty if it did not."""
    dispatched: str
    """Place of the dispatch on the log."""
    output: str
    """Place of the first event with its tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnRow:
    """A turn: how it was matched, what was sampled, and by whom."""

    turn: str
    number: int
    """Counted from 1, in the order in which turns began."""
    state: str
    finish_reason: str
    match_rule: str
    match_detail: str
    ambiguous: bool
    parent: str
    """Turn whose history it extends; empty without one."""
    policy: str
    module: str
    choice: int
    prompt_node: int
    node: int
    prompt_length: int
    """Token count of its whole prompt."""
    length: int
    """Token count of its answer."""
    delivered: bool
    copied_from: str
    """Recorded turn that a fork copied; empty for one that was sampled here."""
    control: str
    """Verdict from its control rule; empty without one."""
    stretches: tuple[StretchRow, ...]
    trained: int
    """Tokens in its answer that a step trained."""
    started: str
    ended: str
    """Places of its first and last event on the log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRow:
    """A node of the tree: a run of tokens behind a prefix of its parent."""

    node: int
    parent: int
    parent_end: int
    begin: int
    """First token, counted in the session."""
    length: int
    origin: str
    turn: str
    branches: int
    """Child count; above 1, the history forks behind it."""
    cut: bool
    """True if it stands behind only a part of its parent. The rest belongs to another branch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRow:
    """A committed step whose batch has the session's group."""

    step: int
    """Counted from 1, as people see steps."""
    version: int
    """Version that it made."""
    policy: str
    lineage: str
    survives: bool
    """False if its weights were lost in a restart."""
    place: str
    tokens: int
    """The session's tokens in its loss, as its commit counts them."""
    loss: str
    advantage: str
    """Names of its methods."""
    filtered: str
    figures: Mapping[str, float]
    """Metrics that only the whole step has, not a token: clipped share, mismatch, staleness."""


_FIGURES = (
    "clip_fraction",
    "mismatch_mean",
    "mismatch_max",
    "staleness_mean",
    "staleness_max",
    "grad_norm",
)


def turn_rows(tokens: ExplainedTokens) -> tuple[TurnRow, ...]:
    """Return a session's turns in the order in which they began; none without its events."""
    if tokens.folded is None:
        return ()
    folded = tokens.folded
    columns = tokens.columns
    stretches: dict[str, list[Stretch]] = {}
    for stretch in folded.stretches:
        stretches.setdefault(stretch.turn_id, []).append(stretch)
    trained_T = _trained(tokens)
    return tuple(
        _turn_row(number, turn, folded, columns, stretches.get(turn.started.turn_id, ()), trained_T)
        for number, turn in enumerate(folded.session.turns.values(), 1)
    )


def node_rows(columns: TokenColumns) -> tuple[NodeRow, ...]:
    """Return the tree's nodes, in log order."""
    children = np.bincount(
        [node.parent for node in columns.nodes if node.parent >= 0], minlength=len(columns.nodes)
    ).tolist()
    return tuple(_node_row(node, columns.nodes, children) for node in columns.nodes)


def step_rows(tokens: ExplainedTokens) -> tuple[StepRow, ...]:
    """Return the steps whose batches have the session's group, in log order."""
    steps = (step for group in tokens.groups.values() for step in group.steps)
    session_id = tokens.columns.trajectory.session_id
    return tuple(_step_row(step, session_id) for step in steps)


def version_names(columns: TokenColumns, begin: int, end: int) -> tuple[str, ...]:
    """Return the versions that sampled these tokens, in order; a run of one version counts once."""
    versions_N = columns.versions_T[begin:end]
    if not len(versions_N):
        return ()
    starts = [0, *(np.flatnonzero(np.diff(versions_N)) + 1).tolist()]
    return tuple(_version_name(columns, begin + start) for start in starts)


def _version_name(columns: TokenColumns, place: int) -> str:
    version = int(columns.versions_T[place])
    if version >= 0:
        return str(version)
    span = next((span for span in reversed(columns.trajectory.spans) if span.start <= place), None)
    return f"{span.version_min}-{span.version_max}?" if span else ""


def _trained(tokens: ExplainedTokens) -> Bools:
    rows = np.array([row.kind is TokenReason.TRAINED for row in tokens.rows], np.bool_)
    return rows[tokens.reasons_T] if len(rows) else np.zeros(0, np.bool_)


def _turn_row(
    number: int,
    turn: Turn,
    folded: FoldedSession,
    columns: TokenColumns,
    stretches: Iterable[Stretch],
    trained_T: Bools,
) -> TurnRow:
    started = turn.started
    events = folded.by_turn.get(started.turn_id, [])
    node = columns.nodes[turn.node] if turn.node < len(columns.nodes) else None
    begin = node.start if node else 0
    end = begin + node.length if node else 0
    return TurnRow(
        turn=started.turn_id,
        number=number,
        state=str(turn.state),
        finish_reason=turn.finish_reason,
        match_rule=started.match_rule,
        match_detail=started.match_detail,
        ambiguous=started.ambiguous,
        parent=started.parent_turn or "",
        policy=started.policy,
        module=started.module,
        choice=started.choice,
        prompt_node=turn.prompt_node,
        node=turn.node,
        prompt_length=started.prompt_length,
        length=end - begin,
        delivered=not turn.undelivered,
        copied_from=turn.copied_from,
        control=turn.control,
        stretches=tuple(_stretch_row(stretch, columns, begin) for stretch in stretches),
        trained=int(np.count_nonzero(trained_T[begin:end])),
        started=place_of(events[0] if events else folded.event(r.SessionOpened)),
        ended=place_of(events[-1] if events else None),
    )


def _stretch_row(stretch: Stretch, columns: TokenColumns, begin: int) -> StretchRow:
    first = begin + stretch.begin
    last = begin + stretch.end
    return StretchRow(
        worker=stretch.worker,
        dispatch=stretch.dispatch,
        begin=first,
        end=last,
        versions=version_names(columns, first, last),
        because=stretch.because,
        interrupted=stretch.interrupted,
        dispatched=place_of(stretch.dispatched),
        output=place_of(stretch.outputs[0]),
    )


def _node_row(
    node: TrajectoryNode, nodes: tuple[TrajectoryNode, ...], children: list[int]
) -> NodeRow:
    behind = node.parent_end if node.parent >= 0 else 0
    return NodeRow(
        node=node.node_id,
        parent=node.parent,
        parent_end=node.parent_end,
        begin=node.start,
        length=node.length,
        origin=node.origin,
        turn=node.turn_id,
        branches=children[node.node_id],
        cut=node.parent >= 0 and behind < nodes[node.parent].length,
    )


def _step_row(step: BatchStep, session_id: str) -> StepRow:
    commit = step.commit
    return StepRow(
        step=shown_step(commit.step),
        version=commit.version,
        policy=commit.policy,
        lineage=commit.lineage,
        survives=step.survives,
        place=place_of(step.item),
        tokens=commit.trained_tokens.get(session_id, 0),
        loss=step.method("loss"),
        advantage=step.method("advantage"),
        filtered=step.group.filtered,
        figures={name: step.metrics[name] for name in _FIGURES if name in step.metrics},
    )
