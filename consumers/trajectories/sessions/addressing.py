"""Addresses of commands: from a session id or a name to the session. Pure.

An id stands for one session for ever, so that its key never gives access to another session. A name
stands for the sessions that requests began under it, one after the other. A command by name goes to
the latest session. It goes to an earlier session if it can only concern that session, or if its key
repeats an earlier call to it.
"""

from collections.abc import Mapping, Sequence

from seamlessflow.consumers.trajectories.sessions.calls import call_hash, id_hash
from seamlessflow.consumers.trajectories.sessions.ended import EndedSessions
from seamlessflow.consumers.trajectories.sessions.session import Session
from seamlessflow.schemas.records import (
    AssignReward,
    CancelTurn,
    CloseSession,
    CountTokens,
    DescribeSession,
    RequestTurn,
)
from seamlessflow.schemas.topics import GatewayQuestion, SessionCommand


def addressed(
    command: SessionCommand | GatewayQuestion,
    sessions: Mapping[str, Session],
    named: Mapping[str, Sequence[str]],
    ended: EndedSessions,
) -> Session | None:
    """Return the session that the command addresses, or None if it is finalized or unknown.

    `named`: by name, its sessions that are not finalized, as ids, oldest first.
    """
    name = command.session_id
    ids = named.get(name, ())
    if isinstance(command, DescribeSession):
        return sessions.get(name) or (sessions.get(ids[-1]) if ids else None)
    if isinstance(command, RequestTurn | CountTokens):
        # Only terms make it a name. A name's sessions are newer than a session with it as id.
        return sessions.get(ids[-1] if ids and command.terms is not None else name)
    if isinstance(command, AssignReward | CloseSession) and ended.changed_by(command):
        return None
    candidates = (sessions[session_id] for session_id in (name, *ids) if session_id in sessions)
    session = next((candidate for candidate in candidates if _knows(candidate, command)), None)
    if session is not None:
        return session
    if name in sessions or id_hash(name) in ended or not ids:
        return sessions.get(name)
    if isinstance(command, AssignReward):
        ids = [key for key in ids if _waits_for_reward(sessions[key])] or ids[-1:]
        return sessions[ids[0]]
    return sessions[ids[-1]]


def _knows(session: Session, command: SessionCommand) -> bool:
    """Return True if the session has the command's turn, or the call that the command repeats."""
    match command:
        case CancelTurn(turn_id=turn_id):
            return turn_id in session.turns
        case AssignReward(reward=reward):
            return reward.turn_id in session.turns or call_hash(command) in session.keyed_calls
        case CloseSession():
            return call_hash(command) in session.keyed_calls
    return False


def _waits_for_reward(session: Session) -> bool:
    """Return True for a closed session whose last reward has not come yet."""
    return session.closed is not None and not session.has_rewards(session.closed)
