"""Ends of sessions: the events that close and finalize one, and causes only the manager knows.

Those causes are limits that the policy ran into. The last prompt was too long for the context, or
the last completion was cut at the context's end or at `max_tokens`. As a rule the agent then fails,
gives no reward, or leaves its session open. If that counted as the environment's failure, the
session would be tried again and left out. Long answers would never be punished. So it counts as the
policy's doing, unless the call that closes the session says otherwise. `SessionClosed` records the
outcome. Pure.
"""

from collections.abc import Iterator
from typing import NamedTuple

from seamlessflow.consumers.trajectories.decisions import dispatch
from seamlessflow.consumers.trajectories.decisions.context import Context, Decision
from seamlessflow.consumers.trajectories.sessions.calls import asked_hash
from seamlessflow.consumers.trajectories.sessions.session import (
    MANAGER_FAILED,
    Session,
    Turn,
    TurnState,
)
from seamlessflow.infra.worker.judged_rewards import JUDGING
from seamlessflow.schemas.records import (
    CloseSession,
    Reward,
    RewardAssigned,
    SessionClosed,
    SessionFinalized,
)

TIME = "time"
CONTROL = "control"
"""Limit of a session whose last completion a control rule ended; also its reward's name."""
_JUDGED = ("complete", "truncated")
_UNNAMED = "reward"
"""Default reward name, awaited when a session waits for a reward but names none."""
_LEFT_OUT = {"retry": "environment", "drop": "setting"}


class SessionEnding(NamedTuple):
    """An ended session's status, cause and limit, as `SessionClosed` records them."""

    status: str
    cause: str
    limit: str


class AwaitedRewards(NamedTuple):
    """Names of the rewards that a closed session waits for, and for how long."""

    names: tuple[str, ...]
    wait_ms: int
    judges: tuple[str, ...] = ()
    """The names among them whose rewards the run's judges give."""


def awaited_rewards(
    session: Session, command: CloseSession, cause: str, context: Context
) -> AwaitedRewards:
    """Return the rewards that a session waits for: those the call names, and the judges'.

    Judges reward a session that its agent ended. They do not judge an end that the policy did not
    cause, for example a time-out. A judge's own session has no judges.
    """
    asked = command.await_rewards
    judges = context.judges.names
    ended = command.status in _JUDGED and command.cause == cause == "policy"
    if not judges or not ended or session.opened.purpose == JUDGING:
        return AwaitedRewards(asked, command.await_reward_ms)
    if command.await_reward_ms and not asked:
        asked = (_UNNAMED,)
    names = tuple(dict.fromkeys((*asked, *judges)))
    return AwaitedRewards(names, max(command.await_reward_ms, context.judges.wait_ms), judges)


def ending(session: Session, command: CloseSession) -> SessionEnding:
    """Return the ending for the session that the command closes."""
    status = command.status
    cause = command.cause
    if session.playing_back and (status == "complete" or cause == "policy"):
        # The agent ended before the chosen turn, so the session holds nothing new.
        return SessionEnding("aborted", "environment", "")
    if status == "timeout":
        return SessionEnding(status, cause, TIME)
    limit = _limit(session)
    unjudged = cause == "environment" or (status == "complete" and not session.rewards)
    if not limit or not unjudged:
        return SessionEnding(status, cause, limit)
    if command.on_limit in _LEFT_OUT:
        return SessionEnding(status, _LEFT_OUT[command.on_limit], limit)
    return _truncated(limit)


def ending_left_open(session: Session) -> SessionEnding:
    """Return the ending for a session that the manager closes because its client did not."""
    limit = _limit(session)
    if limit and not session.running:
        return _truncated(limit)
    return SessionEnding("timeout", "environment", "")


def ruled(session: Session, context: Context, command: CloseSession | None = None) -> SessionClosed:
    """Return the event that closes a session after a control rule ended it, asked or not.

    The end is the policy's doing, whatever the agent says. Without a return the session leaves its
    group.
    """
    turn = session.turns[session.ended_by]
    counts = _return_of(turn) is not None
    return SessionClosed(
        session_id=session.session_id,
        epoch=context.epoch,
        at_ms=context.now_ms,
        command_id=None if command is None else command.command_id,
        reply=None if command is None else command.reply,
        status="pruned",
        reason=turn.control,
        cause="policy" if counts else "setting",
        limit=CONTROL,
        await_reward_until_ms=context.now_ms,
        idempotency_key=None if command is None else command.idempotency_key,
        call_hash=None if command is None else asked_hash(command),
    )


def close(session: Session, event: SessionClosed, context: Context) -> Decision:
    """Return the decision that closes the session, and finalizes it if no reward is awaited."""
    running = list(session.running.values())
    decision = Decision(
        [*_rule_reward(session, context), event],
        dispatch.stop(session, running, "session_closed", context),
    )
    if session.has_rewards(event):
        decision.events.append(finalized(session, "rewarded", context))
    elif event.await_reward_until_ms <= context.now_ms:
        decision.events.append(finalized(session, "no_reward_expected", context))
    return decision


def finalized(session: Session, reason: str, context: Context) -> SessionFinalized:
    """Return the event that ends the session; its trajectory is built when it is read back."""
    return SessionFinalized(
        session_id=session.session_id,
        epoch=context.epoch,
        at_ms=context.now_ms,
        reason=reason,
    )


def given_up(session: Session, context: Context) -> Decision:
    """Return the decision that ends a session, open or closed, which the manager must give up."""
    if session.finalized_at_ms is not None:
        return Decision()
    closed = SessionClosed(
        session_id=session.session_id,
        epoch=context.epoch,
        at_ms=context.now_ms,
        status="aborted",
        reason=MANAGER_FAILED,
        cause="infrastructure",
        await_reward_until_ms=context.now_ms,
    )
    running = list(session.running.values())
    return Decision(
        [closed, finalized(session, MANAGER_FAILED, context)],
        dispatch.stop(session, running, MANAGER_FAILED, context),
    )


def _return_of(turn: Turn) -> float | None:
    """Return the value of a session that the turn's rule ended; None if it leaves its group."""
    return None if turn.started.control is None else turn.started.control.reward


def _rule_reward(session: Session, context: Context) -> Iterator[RewardAssigned]:
    """Yield the reward that counts in the group for a session that a rule ended."""
    turn = session.turns.get(session.ended_by)
    value = None if turn is None else _return_of(turn)
    if turn is None or value is None:
        return
    yield RewardAssigned(
        session_id=session.session_id,
        epoch=context.epoch,
        at_ms=context.now_ms,
        command_id=f"{turn.started.turn_id}.{CONTROL}",
        reward=Reward(name=CONTROL, value=value, source=CONTROL),
        final=False,
    )


def _limit(session: Session) -> str:
    # Without any completion, the first prompt was too long, and the policy did not cause that.
    done = any(turn.state is TurnState.COMPLETED for turn in session.sampled_turns)
    return session.limit if done else ""


def _truncated(limit: str) -> SessionEnding:
    return SessionEnding("truncated", "policy", limit)
