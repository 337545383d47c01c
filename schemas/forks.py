"""A forked session's copied beginning, as the session itself names it. Pure.

The ids of recorded turns and of their tool calls contain the turn's id. So a copy gets its own ids.
They are computed from the new session's id and the turn's number. Everything else stays as it was
recorded.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import orjson

from seamlessflow.schemas.identity import forked_turn_id, tool_call_id, turn_of_tool_call
from seamlessflow.schemas.records import ForkedPrefix, ForkedPrompt, ForkedTurn
from seamlessflow.schemas.tokens import TOKEN_BYTES

MIDDLE = "middle"
PLAYBACK = "playback"
BEHIND_PROMPT = "prompt"
BEHIND_ANSWER = "answer"


_HASH_BYTES = 16
_END = 2**31


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


def check_form(fork: ForkedPrefix) -> None:
    """Raise `ValueError` for the first fault that keeps any session from beginning with the prefix.

    For prefixes from files and HTTP bodies. The manager decides whether the tokens fit the policy.
    """
    fault = next(_faults(fork), None)
    if fault is not None:
        raise ValueError(fault)


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


def _faults(fork: ForkedPrefix) -> Iterator[str]:
    if fork.mode not in (MIDDLE, PLAYBACK):
        yield f"mode: neither of {MIDDLE}, {PLAYBACK}"
    if fork.origin.behind not in (BEHIND_PROMPT, BEHIND_ANSWER):
        yield f"origin.behind: neither of {BEHIND_PROMPT}, {BEHIND_ANSWER}"
    if (fork.prompt is None) != (fork.origin.behind == BEHIND_ANSWER):
        yield "prompt: goes with origin.behind prompt, and not with answer"
    if fork.prompt is None and not fork.turns:
        yield "turns: empty, without a prompt"
    if len(fork.hash) != _HASH_BYTES:
        yield f"hash: not {_HASH_BYTES} bytes"
    numbers = {"length": fork.length, "origin.partition": fork.origin.partition}
    yield from (f"{name}: out of range" for name, value in numbers.items() if not 0 <= value < _END)
    if not 0 <= fork.origin.offset < 2**63:
        yield "origin.offset: out of range"
    for number, turn in enumerate(fork.turns):
        yield from _prompt_faults(turn.prompt, number, f"turns.{number}.prompt")
        yield from _id_faults(turn.ids, f"turns.{number}.ids")
        yield from _message_faults((turn.message,), f"turns.{number}.message")
        if not 0 <= (turn.reasoning_tokens or 0) < _END:
            yield f"turns.{number}.reasoning_tokens: out of range"
    if fork.prompt is not None:
        yield from _prompt_faults(fork.prompt, len(fork.turns), "prompt")
    yield from _message_faults(fork.appended, "appended")


def _prompt_faults(prompt: ForkedPrompt, number: int, place: str) -> Iterator[str]:
    """Yield the faults of a prompt that stands behind `number` turns."""
    if not -1 <= prompt.parent < number:
        yield f"{place}.parent: not a turn before it"
    if not 0 <= prompt.parent_end < _END or not 0 <= prompt.own_messages < _END:
        yield f"{place}: a count is out of range"
    yield from _id_faults(prompt.ids, f"{place}.ids")
    yield from _message_faults(prompt.messages, f"{place}.messages")


def _id_faults(ids: bytes, place: str) -> Iterator[str]:
    if len(ids) % TOKEN_BYTES:
        yield f"{place}: not a whole number of tokens of {TOKEN_BYTES} bytes"


def _message_faults(messages: tuple[bytes, ...], place: str) -> Iterator[str]:
    for message in messages:
        try:
            read = orjson.loads(message)
        except orjson.JSONDecodeError:
            read = None
        if not isinstance(read, dict):
            yield f"{place}: not a JSON object"
