"""Which session a command is for. Pure.

An id means one session, also when that is over: whoever holds its token never gets into another. A
name means sessions that began with a request, one after the other: the latest, but for what can
only concern an earlier one.
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
    """The session; none if there is none, or no more.

    `named` has the sessions of each name that are not finalized, in the order they were begun.
    """
    name = command.session_id
    ids = named.get(name, ())
    if isinstance(command, RequestTurn | CountTokens):
        # Only terms say that a name is meant. A session opened under the name itself is older.
        return sessions.get(ids[-1] if ids and command.terms is not None else name)
    if turn_id := _turn_meant(command):
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


def _turn_meant(command: Command | CountTokens) -> str | None:
    if isinstance(command, CancelTurn):
        return command.turn_id
    return command.reward.turn_id if isinstance(command, AssignReward) else None


def _waits_for_reward(session: Session) -> bool:
    """Whether somebody closed it and said that a reward is to come."""
    return session.closed is not None and not session.rewards_final
