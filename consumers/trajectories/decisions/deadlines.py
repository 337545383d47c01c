"""Deadlines of sessions and turns. Pure. Every wait has a deadline; missing it makes an event."""

from collections.abc import Iterator

from seamlessflow.consumers.trajectories.decisions import dispatch
from seamlessflow.consumers.trajectories.decisions.context import Context, Decision
from seamlessflow.consumers.trajectories.decisions.endings import (
    SessionEnding,
    close,
    ending_left_open,
    finalized,
    ruled,
)
from seamlessflow.consumers.trajectories.sessions.session import Session, Turn
from seamlessflow.infra.worker.judged_rewards import JUDGE_FAILED
from seamlessflow.infra.worker.tags import wishes_of
from seamlessflow.schemas import records as r

RUN_FINISHED = "its run has finished"
_OF_FINISHED_RUN = SessionEnding("aborted", "setting", "")


def due_ms(session: Session, run_over_ms: int | None = None) -> int | None:
    """Return the session's earliest deadline, or None once it is finalized.

    `run_over_ms`: the time when the session is closed because its run has finished.
    """
    return min(_deadlines(session, run_over_ms), default=None)


def overdue(session: Session, context: Context) -> Decision:
    """Return the decision that follows from the passed deadlines."""
    decision = Decision()
    for turn in list(session.running.values()):
        decision.extend(_overdue_turn(session, turn, context))
    if session.closed is None:
        decision.extend(_overdue_session(session, context))
    elif _reward_is_overdue(session, context):
        reason = JUDGE_FAILED if session.lacking_judges else "reward_deadline"
        decision.events.append(finalized(session, reason, context))
    return decision


def _deadlines(session: Session, run_over_ms: int | None) -> Iterator[int]:
    if session.finalized_at_ms is not None:
        return
    for turn in session.running.values():
        yield turn.started.deadline_ms
        if turn.worker is not None:
            yield turn.last_progress_ms + turn.no_progress_ms
    if session.closed is not None:  # only its reward may still come
        yield _wait_ends_ms(session.closed, run_over_ms)
        return
    if session.ended_by:
        yield session.last_activity_ms
    yield session.opened.at_ms + session.opened.max_age_ms
    if run_over_ms is not None:
        yield run_over_ms
    if not session.running:
        yield session.last_activity_ms + session.opened.max_idle_ms


def _overdue_turn(session: Session, turn: Turn, context: Context) -> Decision:
    if turn.started.deadline_ms <= context.now_ms:
        undispatched = turn.dispatch == 0
        event = r.TurnFailed(
            session_id=session.session_id,
            turn_id=turn.started.turn_id,
            epoch=context.epoch,
            status=503 if undispatched else 504,
            reason="no_worker" if undispatched else "deadline",
            detail=_unserved(turn) if undispatched else "the turn took too long",
            cause="infrastructure",
            at_ms=context.now_ms,
        )
        return Decision([event], dispatch.stop(session, [turn], "deadline", context))
    stalled = turn.last_progress_ms + turn.no_progress_ms <= context.now_ms
    if turn.worker is None or stalled:
        reason = "interrupted" if turn.worker is None else "no_progress"
        return dispatch.again(session, turn, reason, context)
    return Decision()


def _unserved(turn: Turn) -> str:
    wishes = wishes_of(turn.started.tags)
    with_tags = f" with the tags {wishes}" if wishes.requires else ""
    return f"no worker{with_tags} could take the turn"


def _overdue_session(session: Session, context: Context) -> Decision:
    if session.ended_by:
        return close(session, ruled(session, context), context)
    opened = session.opened
    now = context.now_ms
    too_old = opened.at_ms + opened.max_age_ms <= now
    idle = not session.running and session.last_activity_ms + opened.max_idle_ms <= now
    run_over_ms = context.run_ends.due_ms(opened)
    over = run_over_ms is not None and run_over_ms <= now
    if not (too_old or idle or over):
        return Decision()
    status, cause, limit = ending_left_open(session) if too_old or idle else _OF_FINISHED_RUN
    reason = RUN_FINISHED
    if too_old:
        reason = "too old"
    elif idle:
        reason = "idle"
    event = r.SessionClosed(
        session_id=session.session_id,
        epoch=context.epoch,
        at_ms=now,
        status=status,
        reason=reason,
        cause=cause,
        limit=limit,
        await_reward_until_ms=now,
    )
    return close(session, event, context)


def _reward_is_overdue(session: Session, context: Context) -> bool:
    if session.closed is None or session.finalized_at_ms is not None:
        return False
    run_over_ms = context.run_ends.due_ms(session.opened)
    return _wait_ends_ms(session.closed, run_over_ms) <= context.now_ms


def _wait_ends_ms(closed: r.SessionClosed, run_over_ms: int | None) -> int:
    """Return until when a closed session waits. A run's judges end with the run."""
    until_ms = closed.await_reward_until_ms
    return until_ms if run_over_ms is None or not closed.judges else min(until_ms, run_over_ms)
