"""The turn that each turn must continue, by comparing whole histories and whole token lists.

Only events that the manager had read when it decided count.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from seamlessflow.infra.rendering.renderer import Renderer
from seamlessflow.schemas import records as r
from seamlessflow.schemas.identity import turn_of_tool_call
from seamlessflow.schemas.tokens import pack, unpack
from tests.builders.trajectories.oracle import ExpectedSession, ExpectedTurn, ids_of
from tests.properties.oracle.forks import answer_of, check_fork, check_raw
from tests.properties.oracle.sessions import KnownSession, LoggedSession

Requests = Mapping[str, r.RequestTurn]


def check_match(
    turn: ExpectedTurn,
    logged: LoggedSession,
    read_to: int,
    requests: Requests,
    renderer: Renderer,
    strictness: str,
) -> None:
    """Check that a turn extends the turn of its history, or else forks where its tokens differ."""
    past, started = logged.until(read_to), turn.started
    request = requests[started.turn_id]
    prompt = logged.session.path(started.parent_node, started.parent_end) + ids_of(started)
    if request.raw:
        check_raw(started, prompt, past, logged.session, request, requests, renderer)
        return
    sent = _whole(request, past.session)
    messages = [orjson.loads(message) for message in sent]
    tools = orjson.loads(request.tools) if request.tools else None
    length, candidates = _longest_known(past, request, messages, requests, strictness)
    if candidates:
        meant, ambiguous = _meant(candidates, messages[length - 1], request.previous_turn)
        before, suffix = _bridged(past.session, meant, messages[length:], tools, renderer)
        if suffix is not None:
            assert started.match_rule == "extend", f"{started.match_rule} where a turn goes on"
            assert started.parent_turn == meant.started.turn_id, "another turn was meant"
            assert started.ambiguous == ambiguous, "I5: an ambiguity is not marked, or is none"
            assert prompt == before + suffix, "I2: not the bridge behind the stored tokens"
            assert list(started.new_messages) == sent[length:]
            ends = [
                place for place, token in enumerate(suffix, 1) if token in renderer.stop_token_ids
            ]
            added = suffix if before[-1] in renderer.stop_token_ids else suffix[ends[0] :]
            _check_added(started, added, messages, messages[length:], tools, renderer)
            return
    assert started.match_rule in ("render", "root", "same"), "extends what the history does not say"
    assert prompt == unpack(renderer.render(messages, tools)), "not the rendered messages"
    assert list(started.new_messages) == sent
    check_fork(past.session, started, prompt, logged.session, renderer.stop_token_ids)


def _check_added(
    started: r.TurnStarted,
    added: list[int],
    messages: Sequence[dict[str, Any]],
    new: Sequence[dict[str, Any]],
    tools: Any,
    renderer: Renderer,
) -> None:
    """Check that messages that no policy sampled read as in a rendering of the whole history."""
    foreign = any(message["role"] == "assistant" for message in new)
    if new and not foreign:
        assert started.match_detail in ("", "same_prompt")
        return
    label = "foreign_answer" if foreign else "answer_last"
    assert started.match_detail in (label, "same_prompt"), "the label does not say what happened"
    whole = unpack(renderer.render(messages, tools))
    assert whole[-len(added) :] == added, "I2: not what the template writes for the messages"


def _whole(request: r.RequestTurn, session: ExpectedSession) -> list[bytes]:
    """Return all messages of a request, with those of the turn that it names."""
    previous = session.turn(request.previous_turn or "")
    if previous is None:
        return list(request.messages)
    count, inherited = request.own_messages, _history(previous, session)
    inherited = inherited[previous.started.own_messages :]
    return [*request.messages[:count], *inherited, *request.messages[count:]]


def _history(turn: ExpectedTurn, session: ExpectedSession) -> list[bytes]:
    """Return the stored messages up to and with a turn's answer."""
    parent = session.turn(turn.started.parent_turn or "")
    before = _history(parent, session) if parent is not None else []
    return [*before, *turn.started.new_messages, answer_of(turn)]


def _longest_known(
    past: KnownSession,
    request: r.RequestTurn,
    messages: Sequence[dict[str, Any]],
    requests: Requests,
    strictness: str,
) -> tuple[int, list[ExpectedTurn]]:
    """Return the completed turns with the longest prefix of the messages, in log order."""
    shown = [_compared(message, strictness) for message in messages]
    by_length: dict[int, list[ExpectedTurn]] = {}
    for turn in past.completed:
        before = requests[turn.started.turn_id]
        sent = (*_whole(before, past.session), answer_of(turn))
        history = [orjson.loads(message) for message in sent]
        if (
            before.raw == request.raw
            and before.tools == request.tools
            and shown[: len(history)] == [_compared(message, strictness) for message in history]
        ):
            by_length.setdefault(len(history), []).append(turn)
    longest = max(by_length, default=0)
    return longest, by_length.get(longest, [])


def _meant(
    candidates: list[ExpectedTurn], answer: Mapping[str, Any], previous: str | None
) -> tuple[ExpectedTurn, bool]:
    """Return the turn that the request or the ids in its answer name, or else the latest.

    The second value is True if that is a guess."""
    said = [candidate for candidate in candidates if candidate.started.turn_id == previous]
    if len(candidates) == 1 or said:
        return (said or candidates)[0], False
    ids = [call.get("id", "") for call in answer.get("tool_calls") or ()]
    named = [
        candidate
        for candidate in candidates
        if candidate.started.turn_id in map(turn_of_tool_call, ids)
    ]
    if named:
        return named[-1], False
    text = answer.get("content") or ""
    read = [(candidate, orjson.loads(answer_of(candidate))) for candidate in candidates]
    candidates = [
        candidate for candidate, said in read if (said.get("content") or "") == text
    ] or candidates
    return candidates[-1], len(candidates) > 1


def _bridged(
    session: ExpectedSession,
    meant: ExpectedTurn,
    messages: Sequence[dict[str, Any]],
    tools: Any,
    renderer: Renderer,
) -> tuple[list[int], list[int] | None]:
    node = 2 * session.turns.index(meant) + 1
    completion = session.node(node)
    before = session.path(node, len(completion))
    prompt = before[: len(before) - len(completion)]
    suffix = renderer.bridge(pack(prompt), pack(completion), messages, tools)
    return before, None if suffix is None else unpack(suffix)


def _compared(message: Mapping[str, Any], strictness: str) -> object:
    text = message.get("content") or ""
    offered = message.get("tool_calls") or ()
    if strictness != "exact" and message["role"] == "assistant":
        text = "" if offered and strictness != "content" else text.strip()
    if strictness == "content":
        return message["role"], text
    ids = [call.get("id", "") for call in offered]
    if strictness == "ids" and ids and all(map(turn_of_tool_call, ids)):
        return message["role"], ids
    calls = [
        (call["function"]["name"], _arguments(call["function"]["arguments"], strictness))
        for call in offered
    ]
    unseen = (message.get("reasoning_content"), message.get("name"))
    return message["role"], text, calls, unseen if strictness == "exact" else None


def _arguments(text: str, strictness: str) -> object:
    try:
        return text if strictness == "exact" else orjson.loads(text)
    except orjson.JSONDecodeError:
        return text
