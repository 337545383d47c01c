"""Which turn a retry means. Pure: what stands on the log decides.

A client that gives its call an idempotency key means the latest turn of that key, whenever it was;
of a call with several choices each is a turn of its own, told by its number.
The vendors' clients give none, only how often they tried before, and the tries before may never
have come to the log (429, 503). So without a key a turn is joined only if it can be that call's: it
answers the same question, an earlier try began it, and its client may lack the answer. In doubt a
new turn begins: that costs a sibling which is not trained, while joining another call's turn would
hand out an old sample as a new one. One thing cannot be told: a retry whose first try never came
to the log joins a turn of the same question that another call waits for at this moment.
"""

from consumers.trajectories.decisions.context import Context
from consumers.trajectories.sessions.session import Session, Turn, TurnState
from schemas.records import RequestTurn

RETRY_WINDOW_MS = 60_000
"""How long after an answer was told its client may still ask again. The vendors' clients wait 8 s
at most between two tries (the gateway asks for 1 s), and some tries may get lost on the way."""

_JOINED = (TurnState.RUNNING, TurnState.COMPLETED)


class KeyReused(ValueError):
    """A call bears the idempotency key of another one."""


def meant_turn(session: Session, command: RequestTurn, context: Context) -> Turn | None:
    """The turn that the command asks for again; none if it asks for a sample of its own.

    An equal body alone is a new sample. Raises `KeyReused`.
    """
    if command.idempotency_key is not None:
        return _turn_of_key(session, command, command.idempotency_key)
    if not command.retry_count:
        return None
    # Looked for turn by turn: such retries are rare, and an index of all bodies is not.
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
    """Whether the turn answers what is asked: another module is answered by another policy."""
    started = turn.started
    return (
        started.body_hash == command.body_hash
        and started.module == command.module
        and started.choice == command.choice
    )


def _may_be_missed(session: Session, turn: Turn, command: RequestTurn, context: Context) -> bool:
    """Whether the client may still lack the turn's answer, or there is none."""
    if turn.state is not TurnState.COMPLETED:
        return True
    # While nobody owned the partition no answer was told.
    told_ms = max(turn.last_progress_ms, context.owner_since_ms)
    if command.issued_at_ms - told_ms > RETRY_WINDOW_MS:
        return False
    return not _gone_on_from(session, turn.started.turn_id)


def _gone_on_from(session: Session, turn_id: str) -> bool:
    """Whether a later turn shows that the agent has the turn's answer."""
    return any(
        turn_id in (turn.started.parent_turn, turn.started.previous_turn)
        for turn in session.turns.values()
    )
