"""The page Sessions: a list of sessions at a moment, and the search in it. Pure."""

import heapq
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from seamlessflow.console.log.run_log import RunPicture
from seamlessflow.console.models.course import Course
from seamlessflow.console.models.sessions import OPEN, SessionRow
from seamlessflow.console.models.training import CHOSEN, FILTERED, TrainedGroup
from seamlessflow.console.views.query import Query
from seamlessflow.console.views.session.reason import MEANINGS, TokenReason
from seamlessflow.schemas.tokens import shown_step

SHOWN = 100
MOST_SHOWN = 1_000
DropReason = Callable[[str], str]
"""Function that returns why a group was dropped, by its id; empty if it was not."""
FINALIZED = "finalized"
"""Search for finalized sessions, whatever their status."""
YES, NO = "yes", "no"
"""Searches for sessions that a step has trained, and for all others."""
_TRAIN = "train"
_OF_DROPS = {"filtered": TokenReason.GROUP_FILTERED, "stale": TokenReason.STALE}
_OF_RULES = {FILTERED: TokenReason.GROUP_FILTERED, CHOSEN: TokenReason.LEFT_OUT}


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionQuery:
    """A search for sessions. `session`, `group`, `task` and `agent` may be parts of the value."""

    session: str = ""
    group: str = ""
    task: str = ""
    policy: str = ""
    purpose: str = ""
    status: str = ""
    agent: str = ""
    version: int | None = None
    """Policy version that sampled one of its tokens."""
    reason: str = ""
    """Part of why it ended, of the limit that it met, or of why its group was dropped."""
    trained: str = ""
    """`yes` or `no`; empty is both."""
    least: float | None = None
    """Least reward."""
    most: float | None = None
    skip: int = 0
    count: int = SHOWN


@dataclass(frozen=True, slots=True)
class SessionTraining:
    """The steps that trained a session, or why none did."""

    reason: str = ""
    """A reason from docs/reasons.md; empty for a session that is not for training."""
    meaning: str = ""
    steps: tuple[tuple[str, int], ...] = ()
    """Policy and number, from 1, of each step that counts and trained one of its tokens."""


NOT_FOR_TRAINING = SessionTraining()
TrainingOf = Callable[[SessionRow], SessionTraining]


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionLine:
    """A session in the list."""

    row: SessionRow
    reward: float | None
    dropped: str
    """Reason why its group was dropped; empty if it was not."""
    training: SessionTraining
    waits_for: str
    """`agent`, the worker that samples, `a worker` while none does, `rewards`; empty at its end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionsPage:
    """Sessions that fit a search, the newest first."""

    total: int
    matching: int
    skip: int
    statuses: Mapping[str, int]
    """Count by status of those that fit."""
    reward_mean: float | None
    """Mean reward over those that fit and have one."""
    lines: tuple[SessionLine, ...]


def session_query(query: Query) -> SessionQuery:
    """Return the search that a query asks for. Raises `QueryRejected`."""
    return SessionQuery(
        session=query.text("session"),
        group=query.text("group"),
        task=query.text("task"),
        policy=query.text("policy"),
        purpose=query.text("purpose"),
        status=query.text("status"),
        agent=query.text("agent"),
        version=query.number("version"),
        reason=query.text("reason"),
        trained=query.choice("trained", (YES, NO)),
        least=query.real("least"),
        most=query.real("most"),
        skip=query.number("skip") or 0,
        count=query.number("count", 1, MOST_SHOWN) or SHOWN,
    )


def _no_reason(group_id: str) -> str:
    return ""


def _not_trained(row: SessionRow) -> SessionTraining:
    return NOT_FOR_TRAINING


def sessions_page(
    picture: RunPicture,
    query: SessionQuery,
    drop_reason: DropReason = _no_reason,
    training_of: TrainingOf = _not_trained,
) -> SessionsPage:
    """Return the page."""
    matching = [
        row
        for fold in picture.sessions.values()
        for row in fold.rows()
        if fits(row, query, drop_reason) and _fits_training(row, query, training_of)
    ]
    statuses = Counter(row.status for row in matching)
    rewards = [reward for row in matching if (reward := row.reward) is not None]
    shown = heapq.nlargest(query.skip + query.count, matching, _opening)[query.skip :]
    turns = _workers(picture)
    return SessionsPage(
        total=sum(fold.sessions for fold in picture.sessions.values()),
        matching=len(matching),
        skip=query.skip,
        statuses=dict(sorted(statuses.items())),
        reward_mean=sum(rewards) / len(rewards) if rewards else None,
        lines=tuple(
            SessionLine(
                row=row,
                reward=row.reward,
                dropped=drop_reason(row.group_id),
                training=training_of(row),
                waits_for=_waits_for(row, turns),
            )
            for row in shown
        ),
    )


def fits(row: SessionRow, query: SessionQuery, drop_reason: DropReason = _no_reason) -> bool:
    """Return whether a session fits a search."""
    if query.session not in row.session_id or query.task not in row.task_id:
        return False
    if query.group not in row.group_id or query.agent not in row.agent:
        return False
    if query.version is not None and query.version not in row.versions:
        return False
    if query.reason and not _has_reason(row, query.reason, drop_reason):
        return False
    if query.policy and query.policy != row.policy:
        return False
    if query.purpose and query.purpose != row.purpose:
        return False
    if query.status and not _has_status(row, query.status):
        return False
    if query.least is None and query.most is None:
        return True
    reward = row.reward
    if reward is None:
        return False
    least = query.least is None or reward >= query.least
    return least and (query.most is None or reward <= query.most)


def session_training(row: SessionRow, course: Course, end: int) -> SessionTraining:
    """Return the steps that trained a session before an offset on `control`, or why none did."""
    batches = course.training.batches(row.group_id or row.session_id, end)
    kept = [batch for batch in batches if course.training.survives(batch, end)]
    steps = tuple(
        (batch.policy, shown_step(batch.step)) for batch in kept if row.session_id in batch.trained
    )
    if not steps and row.purpose != _TRAIN:
        return NOT_FOR_TRAINING
    reason = TokenReason.TRAINED if steps else _untrained(row, batches, kept, course, end)
    return SessionTraining(reason.value, MEANINGS[reason], steps)


def _untrained(
    row: SessionRow,
    batches: Sequence[TrainedGroup],
    kept: Sequence[TrainedGroup],
    course: Course,
    end: int,
) -> TokenReason:
    """Return why no step that counts has trained a session, in the order that its page uses."""
    group = row.group_id or row.session_id
    if course.training.has_failed(group, row.sample, row.attempt, end):
        return TokenReason.SESSION_FAILED
    left = [batch for batch in kept if row.session_id in batch.left]
    if left:
        return _OF_RULES.get(left[-1].rule, TokenReason.UNKNOWN)
    if dropped := course.drop_reason(group, end):
        return _OF_DROPS.get(dropped, TokenReason.GROUP_DROPPED)
    if any(row.session_id in (*batch.trained, *batch.left) for batch in batches):
        return TokenReason.LOST_STEP
    return TokenReason.UNDER_WAY if row.finalized_ms is None else TokenReason.NOT_IN_STEP


def _fits_training(row: SessionRow, query: SessionQuery, training_of: TrainingOf) -> bool:
    return not query.trained or bool(training_of(row).steps) == (query.trained == YES)


def _has_reason(row: SessionRow, reason: str, drop_reason: DropReason) -> bool:
    return any(reason in text for text in (row.reason, row.limit, drop_reason(row.group_id)))


def _has_status(row: SessionRow, status: str) -> bool:
    if status == FINALIZED:
        return row.finalized_ms is not None
    return row.status == status


def _opening(row: SessionRow) -> tuple[int, int, int]:
    """Return the sort key for sessions: when they opened, then their place."""
    return row.opened_ms, row.partition, row.offset


def _workers(picture: RunPicture) -> dict[str, str]:
    """Return the worker of each session with a turn under way; empty if no worker has the turn."""
    return {
        turn.session_id: turn.worker
        for fold in picture.sessions.values()
        for turn in fold.turns.values()
    }


def _waits_for(row: SessionRow, turns: Mapping[str, str]) -> str:
    if row.finalized_ms is not None:
        return ""
    if row.status != OPEN:
        return "rewards"
    worker = turns.get(row.session_id)
    return "agent" if worker is None else worker or "a worker"
