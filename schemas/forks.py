"""The copied beginning of a forked session, as the session itself names it. Pure.

Ids of recorded turns, and those of their tool calls, contain the turn's id, so a copy gets ids of
its own: functions of the new session's id and of the turn's number. All else stays as it was
recorded.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import orjson

from schemas.identity import forked_turn_id, tool_call_id, turn_of_tool_call
from schemas.records import ForkedPrefix, ForkedPrompt, ForkedTurn

MIDDLE, PLAYBACK = "middle", "playback"
BEHIND_PROMPT, BEHIND_ANSWER = "prompt", "answer"


def of_session(fork: ForkedPrefix, session_id: str) -> ForkedPrefix:
    """Return the prefix with the ids that its turns and tool calls have in this session."""
    recorded = [turn.prompt.turn_id for turn in fork.turns]
    ids = {turn_id: forked_turn_id(session_id, n) for n, turn_id in enumerate(recorded)}
    chosen = forked_turn_id(session_id, len(recorded))
    return replace(
        fork,
        turns=tuple(_turn(turn, ids) for turn in fork.turns),
        prompt=None if fork.prompt is None else _prompt(fork.prompt, ids, chosen),
    )


def history(fork: ForkedPrefix) -> list[bytes]:
    """Return all messages before the agent's first new answer, the appended ones included."""
    parts: list[tuple[bytes, ...]] = [fork.appended]
    if fork.prompt is None:
        number = len(fork.turns) - 1
    else:
        parts.append(fork.prompt.messages)
        number = fork.prompt.parent
    while number >= 0:
        turn = fork.turns[number]
        parts.append((*turn.prompt.messages, turn.message))
        number = turn.prompt.parent
    return [message for part in reversed(parts) for message in part]


def _turn(turn: ForkedTurn, ids: Mapping[str, str]) -> ForkedTurn:
    prompt = _prompt(turn.prompt, ids, ids[turn.prompt.turn_id])
    return replace(turn, prompt=prompt, message=_message(turn.message, ids))


def _prompt(prompt: ForkedPrompt, ids: Mapping[str, str], turn_id: str) -> ForkedPrompt:
    messages = tuple(_message(message, ids) for message in prompt.messages)
    return replace(prompt, turn_id=turn_id, messages=messages)


def _message(message: bytes, ids: Mapping[str, str]) -> bytes:
    if b'"call_' not in message:
        return message
    read: dict[str, Any] = orjson.loads(message)
    for call in read.get("tool_calls") or ():
        call["id"] = _call_id(call.get("id"), ids)
    if "tool_call_id" in read:
        read["tool_call_id"] = _call_id(read["tool_call_id"], ids)
    return orjson.dumps(read, option=orjson.OPT_SORT_KEYS)


def _call_id(public_id: Any, ids: Mapping[str, str]) -> Any:
    turn_id = turn_of_tool_call(public_id) if isinstance(public_id, str) else None
    if turn_id is None or turn_id not in ids:
        return public_id
    return tool_call_id(ids[turn_id], int(public_id.rpartition("_")[2]))
