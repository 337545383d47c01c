"""Recognition of session calls whose effect is on the log already. Pure.

A client whose answer was lost repeats its call, and gets the answer that it missed. That leaves no
event: a second one would change the trajectory or hold nothing new.
"""

from seamlessflow.consumers.trajectories.decisions.context import Context
from seamlessflow.consumers.trajectories.sessions import calls
from seamlessflow.consumers.trajectories.sessions.addressing import Command
from seamlessflow.consumers.trajectories.sessions.replies import opening_answer
from seamlessflow.consumers.trajectories.sessions.session import Session
from seamlessflow.schemas.records import AssignReward, CloseSession, CommandAnswered, OpenSession


def changed_by(session: Session | None, command: Command, context: Context) -> str | None:
    """Return the id of the session that an earlier, equal call changed, or None if none did."""
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


def reused_key(session: Session, command: Command) -> str | None:
    """Return the command's key if another call opened or closed the session with it, or None."""
    match command:
        case OpenSession(idempotency_key=key) if key == session.opened.idempotency_key:
            return key
        case CloseSession(idempotency_key=key) if session.closed is not None:
            return key if key == session.closed.idempotency_key else None
    return None


def answer(session_id: str, command: Command, session: Session | None) -> CommandAnswered | None:
    """Return the answer to a command that was carried out, or None if no gateway waits.

    `session`: the one of this id, None if it is finalized.
    """
    if command.reply is None:
        return None
    if session is not None and isinstance(command, OpenSession):
        return opening_answer(command.reply.gateway, command.command_id, session.opened)
    return CommandAnswered(
        gateway=command.reply.gateway, session_id=session_id, command_id=command.command_id
    )
