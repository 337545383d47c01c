"""Addresses of commands: from a session id or a name to the session. Pure.

An id stands for one session for ever, so that its key never gives access to another one. A name
stands for the sessions that requests began under it, one after the other: the latest, unless the
command can only concern an earlier one.
"""

from collections.abc import Callable, Mapping, Sequence

from consumers.trajectories.sessions.session import Session
from schemas.records import (
    AssignReward,
    CancelTurn,
    CloseSession,
    CountTokens,
    OpenSession,
    RequestTurn,
)

Command = OpenSession | RequestTurn | CancelTurn | AssignReward | CloseSession


def addressed(
    command: Command | CountTokens,
    sessions: Mapping[str, Session],
    named: Mapping[str, Sequence[str]],
    ended: Callable[[str], bool],
) -> Session | None:
    """Return the session that the command addresses, or None if it never was or is finalized.

    `named`: by name, the ids of its sessions that are not finalized, oldest first. `ended(id)` is
    True for the id of a finalized session.
    """
    name = command.session_id
    ids = named.get(name, ())
    if isinstance(command, RequestTurn | CountTokens):
        # Only terms make it a name, whose sessions are newer than one opened with it as its id.
        return sessions.get(ids[-1] if ids and command.terms is not None else name)
    if turn_id := _turn_named(command):
        of_turn = (sessions[one] for one in (name, *ids) if one in sessions)
        found = next((one for one in of_turn if turn_id in one.turns), None)
        if found is not None:
            return found
    if name in sessions or ended(name) or not ids:
        return sessions.get(name)
    if isinstance(command, AssignReward):
        ids = [one for one in ids if _waits_for_reward(sessions[one])] or ids[-1:]
        return sessions[ids[0]]
    return sessions[ids[-1]]


def _turn_named(command: Command | CountTokens) -> str | None:
    if isinstance(command, CancelTurn):
        return command.turn_id
    return command.reward.turn_id if isinstance(command, AssignReward) else None


def _waits_for_reward(session: Session) -> bool:
    """Return True for a closed session whose final reward has not come yet."""
    return session.closed is not None and not session.rewards_final
