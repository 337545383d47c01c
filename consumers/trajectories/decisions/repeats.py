"""Recognition of repeated calls, whose effect is on the log already. Pure; the log decides.

A client whose answer was lost repeats its call, and gets the answer that it missed. A repeated
session call (open, reward, close) leaves no event. A second event would change the trajectory or
add nothing new. A retried request joins the turn that it means.

A request with an idempotency key means the latest turn with that key, however old. If a call has
several choices, each choice is a separate turn, found by its number.

The vendors' clients send no key, only how often they tried before. Earlier tries may not have
reached the log (429, 503). Without a key, a retry joins a turn only if that can be its own turn.
Such a turn has the same question, an earlier try began it, and the client may lack its answer. In
doubt a new turn starts. That costs a sibling that is not trained. Joining another call's turn would
return an old sample as a new one.

One case goes wrong. If a retry's first try did not reach the log, the retry may join another call's
turn with the same question.
"""

from seamlessflow.consumers.trajectories.decisions.context import Context
from seamlessflow.consumers.trajectories.sessions import calls
from seamlessflow.consumers.trajectories.sessions.replies import opening_answer
from seamlessflow.consumers.trajectories.sessions.session import Session, Turn, TurnState
from seamlessflow.schemas.records import (
    AssignReward,
    CloseSession,
    CommandAnswered,
    OpenSession,
    RequestTurn,
)
from seamlessflow.schemas.topics import SessionCommand

RETRY_WINDOW_MS = 60_000
"""Time in which a client may ask again, counted from when it could read its answer.

The vendors' clients wait 8 s at most between two tries (the gateway asks for 1 s). Several tries in
a row may get lost.
"""
_JOINED = (TurnState.RUNNING, TurnState.COMPLETED)


class KeyReused(ValueError):
    """A call with an idempotency key that a different call has used."""


def changed_by(session: Session | None, command: SessionCommand, context: Context) -> str | None:
    """Return the id of the session that an earlier, equal call changed, or None."""
    match command:
        case OpenSession():
            opening = calls.opening_hash(command)
            openings = context.ended if session is None else {calls.opening_hash(session.opened)}
            return command.session_id if opening is not None and opening in openings else None
        case AssignReward() | CloseSession():
            if session is None:
                return context.ended.changed_by(command)
            hashes = calls.repeatable(session)
            return session.session_id if calls.call_hash(command) in hashes else None
    return None


def reused_key(session: Session, command: SessionCommand) -> str | None:
    """Return the command's key if another call opened or closed the session with it, or None."""
    match command:
        case OpenSession(idempotency_key=key) if key == session.opened.idempotency_key:
            return key
        case CloseSession(idempotency_key=key) if session.closed is not None:
            return key if key == session.closed.idempotency_key else None
    return None


def answer(
    session_id: str, command: SessionCommand, session: Session | None
) -> CommandAnswered | None:
    """Return the answer to a command that was carried out, or None if no gateway waits.

    `session`: the session with this id, or None if it is finalized.
    """
    if command.reply is None:
        return None
    if session is not None and isinstance(command, OpenSession):
        return opening_answer(command.reply.gateway, command.command_id, session.opened)
    return CommandAnswered(
        gateway=command.reply.gateway, session_id=session_id, command_id=command.command_id
    )


def meant_turn(session: Session, command: RequestTurn, context: Context) -> Turn | None:
    """Return the turn that the command asks for again, or None if it asks for a new sample.

    An equal body without a key or a retry count asks for a new sample. Raises `KeyReused`.
    """
    if command.idempotency_key is not None:
        return _turn_of_key(session, command, command.idempotency_key)
    if not command.retry_count:
        return None
    # Searches all turns: such retries are rare, and an index by body would cost every turn.
    tried = (turn for turn in reversed(session.turns.values()) if _may_be(turn, command))
    missed = (turn for turn in tried if _may_be_missed(session, turn, command, context))
    latest = next(missed, None)
    return latest if latest is not None and latest.state in _JOINED else None


def _turn_of_key(session: Session, command: RequestTurn, key: str) -> Turn | None:
    turn = session.turns.get(session.idempotency.get((key, command.choice), ""))
    if turn is None or turn.state not in _JOINED:
        return None
    if not _same_question(turn, command):
        raise KeyReused(f"another request has the idempotency key {key!r}")
    return turn


def _may_be(turn: Turn, command: RequestTurn) -> bool:
    return turn.started.retry_count < command.retry_count and _same_question(turn, command)


def _same_question(turn: Turn, command: RequestTurn) -> bool:
    """Return True if body, module and choice are equal; another module may have another policy."""
    started = turn.started
    return (
        started.body_hash == command.body_hash
        and started.module == command.module
        and started.choice == command.choice
    )


def _may_be_missed(session: Session, turn: Turn, command: RequestTurn, context: Context) -> bool:
    """Return True if the turn has no answer yet, or its client may not have received it."""
    if turn.state is not TurnState.COMPLETED:
        return True
    # No answer could be read while the partition had no owner or Kafka was away.
    answered_ms = max(turn.last_progress_ms, context.readable_since_ms)
    if command.issued_at_ms - answered_ms > RETRY_WINDOW_MS:
        return False
    return not _gone_on_from(session, turn.started.turn_id)


def _gone_on_from(session: Session, turn_id: str) -> bool:
    """Return True if a later turn continues this one, so that the agent has its answer."""
    return any(
        turn_id in (turn.started.parent_turn, turn.started.previous_turn)
        for turn in session.turns.values()
        if not turn.forked or turn.played
    )
