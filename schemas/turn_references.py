"""Messages of a request that stand for what a turn sampled, which the manager alone has. Pure.

A gateway keeps no answers. An agent may name an item of an answer instead of sending it. The
gateway then puts a reference into `RequestTurn.messages`. The manager puts that turn's message into
the history. No message of a dialect has a member of this name.
"""

from collections.abc import Mapping
from typing import Any

import orjson

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

    What was sent counts: the agent may have changed it.
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
