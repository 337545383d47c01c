"""Ids that are functions of other ids, and messages that name a turn by its id. Pure.

A gateway keeps no answers. An agent may name an answer's item instead of sending it. The gateway
then puts a reference into `RequestTurn.messages`. The manager puts that turn's message into the
history. A reference is known by its member `$turn`, which no dialect's message has.
"""

from collections.abc import Mapping
from typing import Any

import orjson
import xxhash


def session_id(group_id: str, sample: int, attempt: int) -> str:
    """Return the session id for one attempt at a group's sample."""
    return f"{group_id}.{sample}.{attempt}"


def group_of_session(session_id: str) -> str:
    """Return the group in a session id that `session_id` made; for any other id, a part of it."""
    return session_id.rsplit(".", 2)[0]


def named_session_id(name: str, command_id: str) -> str:
    """Return the id for a session that a request named and no command opened.

    The request's id makes it differ from all other sessions with that name.
    """
    return f"{name}~{command_id}"


def session_name(session_id: str) -> str:
    """Return the key for a session's commands, its name or its id, which chooses the partition."""
    return session_id.partition("~")[0]


def forked_turn_id(session_id: str, number: int) -> str:
    """Return the id that a fork's n-th turn has in this session.

    It is a hash, since vendors' clients refuse tool-call ids with other characters than these.
    """
    return f"f{xxhash.xxh3_64_hexdigest(session_id.encode())}n{number:x}"


def tool_call_id(turn_id: str, number: int) -> str:
    """Return the public id of a turn's n-th tool call; it contains the turn's id."""
    return f"call_{turn_id}_{number}"


def turn_of_tool_call(public_id: str) -> str | None:
    """Return the turn in a public tool-call id, or None if this project did not make the id."""
    prefix, _, rest = public_id.partition("_")
    turn_id, _, number = rest.rpartition("_")
    return turn_id if prefix == "call" and turn_id and number.isdigit() else None


_TURN = "$turn"
# The first member of canonical JSON, since `$` sorts before all letters.
_BEGIN = b'{"%b":' % _TURN.encode()


def turn_reference(turn_id: str, sent: Mapping[str, Any]) -> dict[str, Any]:
    """Return the message that stands for a turn's answer, with the members that were `sent`."""
    return {_TURN: turn_id, **sent}


def is_reference(message: bytes) -> bool:
    """Return whether a message in canonical JSON stands for a turn's answer."""
    return message.startswith(_BEGIN)


def referenced_turn(message: bytes) -> str:
    """Return the turn that a reference stands for."""
    return str(orjson.loads(message)[_TURN])


def resolved(message: bytes, answer: bytes) -> bytes:
    """Return the turn's `answer`, with the members and calls that were sent beside the reference.

    A sent value replaces the sampled one: the agent may have changed it.
    """
    sent = orjson.loads(message)
    del sent[_TURN]
    if not sent:
        return answer
    sampled = orjson.loads(answer)
    listed = (*(sampled.get("tool_calls") or ()), *sent.get("tool_calls", ()))
    calls = {call["id"]: call for call in listed}
    whole = sampled | sent | ({"tool_calls": list(calls.values())} if calls else {})
    return orjson.dumps(whole, option=orjson.OPT_SORT_KEYS)
