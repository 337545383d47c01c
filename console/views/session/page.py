"""A session's page and its JSON twin: facts, tree, turns, steps, and reasons with their sums.

The tokens themselves are sent by range (`token_range.py`), with codes that are row numbers here. An
overview has at most a thousand entries, however long the session is. Pure.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import orjson

from seamlessflow.console.views.session.columns import INEXACT, TokenColumns
from seamlessflow.console.views.session.reason import (
    MEANINGS,
    ReasonRow,
    TokenReason,
    place_of,
)
from seamlessflow.console.views.session.reasons import ExplainedTokens
from seamlessflow.console.views.session.rows import (
    NodeRow,
    StepRow,
    TurnRow,
    node_rows,
    step_rows,
    turn_rows,
)
from seamlessflow.console.views.session.token_range import TokenRange
from seamlessflow.console.views.session.trained_runs import TrainedRuns, name_of
from seamlessflow.infra.printable import number_of
from seamlessflow.schemas import records as r
from seamlessflow.schemas.arrays import Float32s, Float64s, Int32s, Int64s
from seamlessflow.schemas.records import Reward
from seamlessflow.schemas.tokens import step_name

_OF_STEPS = (TokenReason.TRAINED, TokenReason.LOST_STEP)
"""Reasons for tokens that a step has trained."""
OVERVIEW = 1_000
"""Most entries in an overview."""


@dataclass(frozen=True, slots=True)
class KindRow:
    """A kind of reason that the session has, for the legend and for sums."""

    kind: TokenReason
    meaning: str
    tokens: int


@dataclass(frozen=True, slots=True)
class Overview:
    """The session in equal parts, for a strip that shows the whole session at once."""

    begins: Int32s
    """Each part's first token."""
    sampled: Int32s
    """Middle one of each part's sampled tokens, or the part's middle token without any."""
    reasons: Int32s
    versions: Int32s
    workers: Int32s
    mask: Int32s
    """`reasons` to `mask`: facts about that token."""
    logprobs: Float32s
    """Mean log-prob of each part's sampled tokens; null without any."""
    advantages: Float32s
    """Mean advantage of each part's trained tokens; null without any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionPage:
    """The whole session except its tokens."""

    session: str
    policy: str
    purpose: str
    task: str
    group: str
    sample: int
    attempt: int
    status: str
    """Its end; `open` until it has one."""
    cause: str
    because: str
    limit: str
    rewards: tuple[Reward, ...]
    opened_at_ms: int
    finalized_at_ms: int | None
    tokens: int
    sampled: int
    trained: int
    outcome: str
    """A sentence that says what became of its tokens."""
    versions: tuple[int, ...]
    """Policy versions that sampled it, the oldest first."""
    workers: tuple[str, ...]
    reasons: tuple[ReasonRow, ...]
    kinds: tuple[KindRow, ...]
    nodes: tuple[NodeRow, ...]
    turns: tuple[TurnRow, ...]
    steps: tuple[StepRow, ...]
    places: Mapping[str, str]
    """Places of the session's records on the log, by record type."""
    notices: tuple[str, ...]
    """Sentences about facts that the run does not keep, and the settings that keep them."""
    overview: Overview


def twin(shown: SessionPage | TokenRange) -> bytes:
    """Return a page or a token range as JSON; a missing number is null."""
    return orjson.dumps(shown, option=orjson.OPT_SERIALIZE_NUMPY)


def session_page(tokens: ExplainedTokens, trained: TrainedRuns) -> SessionPage:
    """Return a session's page; `trained`: its rows in `trained/`."""
    columns = tokens.columns
    record = columns.trajectory
    by_kind = tokens.tokens_by_kind()
    finalized = tokens.folded.session.finalized_at_ms if tokens.folded else record.finalized_at_ms
    versions_T = columns.versions_T
    return SessionPage(
        session=record.session_id,
        policy=record.policy,
        purpose=record.purpose,
        task=record.task_id,
        group=record.group_id,
        sample=record.sample,
        attempt=record.attempt,
        status=_status(tokens),
        cause=record.cause,
        because=next(reversed(record.reason.splitlines()), ""),
        limit=record.limit,
        rewards=record.rewards,
        opened_at_ms=record.opened_at_ms,
        finalized_at_ms=finalized,
        tokens=len(columns),
        sampled=int(np.count_nonzero(columns.sampled_T)),
        trained=by_kind.get(TokenReason.TRAINED, 0),
        outcome=_outcome(tokens),
        versions=tuple(np.unique(versions_T[versions_T >= 0]).tolist()),
        workers=columns.workers,
        reasons=tokens.rows,
        kinds=tuple(
            KindRow(kind, MEANINGS[kind], by_kind[kind]) for kind in TokenReason if kind in by_kind
        ),
        nodes=node_rows(columns),
        turns=turn_rows(tokens),
        steps=step_rows(tokens),
        places=_places(tokens),
        notices=tuple(_notices(tokens, trained)),
        overview=overview(tokens),
    )


def overview(tokens: ExplainedTokens, most: int = OVERVIEW) -> Overview:
    """Return a session in at most `most` equally long parts."""
    columns = tokens.columns
    size = len(columns)
    parts = min(size, most)
    edges = np.linspace(0, size, parts + 1).astype(np.int64)
    sampled = _middle(columns, edges)
    return Overview(
        begins=edges[:-1].astype(np.int32),
        sampled=sampled.astype(np.int32),
        reasons=tokens.reasons_T[sampled],
        versions=columns.versions_T[sampled],
        workers=columns.workers_T[sampled],
        mask=columns.mask_T[sampled].astype(np.int32),
        logprobs=_means(columns.logprobs_T, edges),
        advantages=_means(tokens.advantages_T, edges),
    )


def _middle(columns: TokenColumns, edges: Int64s) -> Int64s:
    """Return a token for each part: the middle one of those sampled, else of all."""
    sampled = np.flatnonzero(columns.sampled_T)
    low = np.searchsorted(sampled, edges[:-1])
    high = np.searchsorted(sampled, edges[1:])
    middle = (edges[:-1] + edges[1:]) // 2
    if not len(sampled):
        return middle
    return np.where(high > low, sampled[np.minimum((low + high) // 2, len(sampled) - 1)], middle)


def _means(values_T: Float32s, edges: Int64s) -> Float32s:
    """Return the mean of each part's numbers, NaN for a part without any."""
    numbers_T = ~np.isnan(values_T)
    sums: Float64s = np.concatenate([[0.0], np.cumsum(np.where(numbers_T, values_T, 0.0))])
    counts = np.concatenate([[0], np.cumsum(numbers_T)])
    total = sums[edges[1:]] - sums[edges[:-1]]
    count = counts[edges[1:]] - counts[edges[:-1]]
    means = np.full(len(total), np.nan)
    np.divide(total, count, out=means, where=count > 0)
    return means.astype(np.float32)


def _status(tokens: ExplainedTokens) -> str:
    folded = tokens.folded
    closed = folded is None or folded.session.closed is not None
    return tokens.columns.trajectory.status if closed else "open"


def _outcome(tokens: ExplainedTokens) -> str:
    """Return what became of most tokens that may be trained; of the sampled ones if none may."""
    columns = tokens.columns
    counted_T = columns.mask_T if columns.mask_T.any() else columns.sampled_T
    if not counted_T.any():
        return "no token was sampled"
    counts = np.bincount(tokens.reasons_T[counted_T], minlength=len(tokens.rows))
    row = tokens.rows[int(counts.argmax())]
    whole = int(np.count_nonzero(columns.sampled_T))
    untrained = "" if row.kind in _OF_STEPS else "not trained: "
    return f"{number_of(int(counts.max()), 'token')} of {whole:,} sampled: {untrained}{row.words}"


def _places(tokens: ExplainedTokens) -> dict[str, str]:
    """Return the places of records about the whole session and its group."""
    kinds = (r.SessionOpened, r.SessionClosed, r.SessionFinalized)
    events = [] if tokens.folded is None else [tokens.folded.event(kind) for kind in kinds]
    group = tokens.groups.get(tokens.columns.trajectory.policy)
    of_group = (group.ready, group.dropped, group.failed) if group else ()
    items = (*events, tokens.logged, *of_group)
    return {type(item.record).__name__: place_of(item) for item in items if item is not None}


def _notices(tokens: ExplainedTokens, trained: TrainedRuns) -> list[str]:
    """Return a sentence for each fact that is not kept, or not here."""
    steps = [step for group in tokens.groups.values() for step in group.surviving]
    without = [step for step in steps if name_of(step.commit) not in trained.by_step]
    notices = []
    if without:
        names = ", ".join(step_name(step.commit.step) for step in without)
        notices.append(
            f"the file of {names} is not in trained/ here, so advantages are not shown, and tokens "
            "count as trained where the step's commit leaves no doubt; trainer.trained_dir keeps it"
        )
    if steps:
        notices.append(
            "log-probs at the trainer, and the tokens that the loss clipped, are kept for a whole "
            "step alone, in the figures of StepCompleted; no setting keeps them by token"
        )
    if len(tokens.columns) and not np.isfinite(tokens.columns.logprobs_T).any():
        notices.append("the log has no log-probs of these tokens: their sampler reported none")
    if (tokens.columns.versions_T == INEXACT).any():
        notices.append(
            "weights were replaced inside a span whose tokens are not known apart by version"
        )
    if tokens.strangers:
        notices.append(
            f"trained/ has {tokens.strangers:,} tokens that the session does not have: "
            "`seamlessflow audit` names them"
        )
    return [*notices, *trained.faults]
