"""Decision about a turn whose client left. Pure."""

from seamlessflow.consumers.trajectories.decisions import dispatch
from seamlessflow.consumers.trajectories.decisions.context import Context, Decision
from seamlessflow.consumers.trajectories.sessions.session import Session, Turn, TurnState
from seamlessflow.schemas import records as r


def cancel(session: Session, command: r.CancelTurn, context: Context) -> Decision:
    """Return the decision that ends a running turn, or marks a completed one as undelivered.

    Empty if the turn ended otherwise, or if another gateway waits for it.
    """
    turn = session.turns.get(command.turn_id)
    if turn is None or _wanted_by_another_gateway(turn, command):
        return Decision()
    if turn.state is TurnState.COMPLETED:
        return Decision([_undelivered(command, context)])
    if not turn.running:
        return Decision()
    event = r.TurnCancelled(
        session_id=command.session_id,
        epoch=context.epoch,
        at_ms=context.now_ms,
        command_id=command.command_id,
        turn_id=command.turn_id,
        reason=command.reason,
    )
    return Decision([event], dispatch.stop(session, [turn], command.reason, context))


def _undelivered(command: r.CancelTurn, context: Context) -> r.TurnUndelivered:
    return r.TurnUndelivered(
        session_id=command.session_id,
        epoch=context.epoch,
        at_ms=context.now_ms,
        command_id=command.command_id,
        turn_id=command.turn_id,
        reason=command.reason,
    )


def _wanted_by_another_gateway(turn: Turn, command: r.CancelTurn) -> bool:
    """Return True if a retry joined the turn later, through another gateway than this one.

    The latest gateway decides for all, since its client is as a rule that of the earlier ones.
    """
    return command.reply is not None and command.reply not in turn.waiting[-1:]
