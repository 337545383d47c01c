"""Where each turn had to go on, by comparing whole histories and whole token lists.

What counts is what its manager had read when it decided.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from infra.rendering import Renderer
from infra.tokenizer import pack, unpack
from schemas import records as r
from schemas.identity import turn_of_tool_call
from tests.properties.told import Known, Told
from tests.unit.trajectories.oracle import SessionTold, TurnTold, ids_of

Requests = Mapping[str, r.RequestTurn]


def check_match(
    turn: TurnTold,
    told: Told,
    read_to: int,
    requests: Requests,
    renderer: Renderer,
    strictness: str,
) -> None:
    """That a turn extends the turn its history names, else forks where its tokens leave."""
    known, started = told.until(read_to), turn.started
    request = requests[started.turn_id]
    messages = [orjson.loads(message) for message in request.messages]
    tools = orjson.loads(request.tools) if request.tools else None
    prompt = told.session.path(started.parent_node, started.parent_end) + ids_of(started)
    length, candidates = _longest_known(known, request, messages, requests, strictness)
    if candidates and length < len(messages):
        meant, ambiguous = _meant(candidates, messages[length - 1])
        before, suffix = _bridged(known.session, meant, messages[length:], tools, renderer)
        if suffix is not None:
            assert started.match_rule == "extend", f"{started.match_rule} where a turn goes on"
            assert started.parent_turn == meant.started.turn_id, "another turn was meant"
            assert started.ambiguous == ambiguous, "I5: an ambiguity is not marked, or is none"
            assert prompt == before + suffix, "I2: not the bridge behind the stored tokens"
            return
    assert started.match_rule in ("render", "root"), "extends what the history does not say"
    assert prompt == unpack(renderer.render(messages, tools)), "not the rendered messages"
    _check_fork(known.session, started, prompt, told.session, renderer)


def _check_fork(
    known: SessionTold,
    started: r.TurnStarted,
    prompt: list[int],
    session: SessionTold,
    renderer: Renderer,
) -> None:
    shared = max(
        (_common(prompt, known.path(node, len(known.node(node)))) for node in _nodes(known)),
        default=0,
    )
    if any(stop in prompt[:shared] for stop in renderer.stop_token_ids):
        assert started.match_rule == "render"
        parent = session.path(started.parent_node, started.parent_end)
        assert parent == prompt[:shared], "I5: forks elsewhere than where the tokens leave"
    else:
        assert (started.match_rule, started.parent_node) == ("root", -1)


def _longest_known(
    known: Known,
    request: r.RequestTurn,
    messages: Sequence[dict[str, Any]],
    requests: Requests,
    strictness: str,
) -> tuple[int, list[TurnTold]]:
    """Completed turns that end behind the longest beginning of the messages, as they ended."""
    shown = [_compared(message, strictness) for message in messages]
    found: dict[int, list[TurnTold]] = {}
    for turn in known.completed:
        before = requests[turn.started.turn_id]
        history = [orjson.loads(message) for message in (*before.messages, _message(turn))]
        if before.tools == request.tools and shown[: len(history)] == [
            _compared(message, strictness) for message in history
        ]:
            found.setdefault(len(history), []).append(turn)
    longest = max(found, default=0)
    return longest, found.get(longest, [])


def _meant(candidates: list[TurnTold], answer: Mapping[str, Any]) -> tuple[TurnTold, bool]:
    """The turn that the ids in its answer name, else the latest; and whether that is a guess."""
    if len(candidates) == 1:
        return candidates[0], False
    ids = [call.get("id", "") for call in answer.get("tool_calls") or ()]
    named = [one for one in candidates if one.started.turn_id in map(turn_of_tool_call, ids)]
    return (named or candidates)[-1], not named


def _bridged(
    known: SessionTold,
    meant: TurnTold,
    messages: Sequence[dict[str, Any]],
    tools: Any,
    renderer: Renderer,
) -> tuple[list[int], list[int] | None]:
    node = 2 * known.turns.index(meant) + 1
    completion = known.node(node)
    before = known.path(node, len(completion))
    prompt = before[: len(before) - len(completion)]
    suffix = renderer.bridge(pack(prompt), pack(completion), messages, tools)
    return before, None if suffix is None else unpack(suffix)


def _compared(message: Mapping[str, Any], strictness: str) -> object:
    text = message.get("content") or ""
    if strictness == "content":
        return message["role"], text
    offered = message.get("tool_calls") or ()
    ids = [call.get("id", "") for call in offered]
    if strictness == "ids" and ids and all(map(turn_of_tool_call, ids)):
        return message["role"], ids
    calls = [
        (call["function"]["name"], _arguments(call["function"]["arguments"], strictness))
        for call in offered
    ]
    reasoning = message.get("reasoning_content") if strictness == "exact" else None
    return message["role"], text, calls, reasoning


def _arguments(text: str, strictness: str) -> object:
    try:
        return text if strictness == "exact" else orjson.loads(text)
    except orjson.JSONDecodeError:
        return text


def _message(turn: TurnTold) -> bytes:
    completed = turn.outputs[-1]
    assert isinstance(completed, r.TurnCompleted)
    return completed.message


def _nodes(known: SessionTold) -> range:
    return range(2 * len(known.turns))


def _common(one: Sequence[int], two: Sequence[int]) -> int:
    pairs = zip(one, two, strict=False)
    return next((place for place, (a, b) in enumerate(pairs) if a != b), min(len(one), len(two)))
