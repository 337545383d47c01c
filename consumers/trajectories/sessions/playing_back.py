"""Fold of `TurnPlayedBack`: a request that was answered with a copied turn. Pure.

The turn takes over how it was asked for, so that retries find it as they find any other.
"""

from dataclasses import replace

from seamlessflow.consumers.trajectories.sessions.session import Session, Turn
from seamlessflow.schemas.records import TurnPlayedBack


def apply(session: Session, event: TurnPlayedBack) -> Turn | None:
    """Note the request on the copied turn and return the turn; None if the event does not count."""
    turn = session.turns.get(event.turn_id)
    late = session.closed is not None or event.command_id in session.commands
    if turn is None or not turn.forked or late:
        return None
    session.commands.add(event.command_id)
    turn.started = replace(
        turn.started,
        reply=event.reply,
        idempotency_key=event.idempotency_key,
        retry_count=event.retry_count,
        body_hash=event.body_hash,
        choice=event.choice,
    )
    turn.played, turn.undelivered = True, False
    turn.waiting = [] if event.reply is None else [event.reply]
    turn.last_progress_ms = session.last_activity_ms = event.at_ms
    if event.idempotency_key is not None:
        session.idempotency[event.idempotency_key, event.choice] = event.turn_id
    return turn
