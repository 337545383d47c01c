"""The place at which a prompt leaves the tokens of its session, by comparing all of them."""

from collections.abc import Mapping, Sequence

import orjson

from seamlessflow.infra.rendering.renderer import Renderer
from seamlessflow.schemas import records as r
from seamlessflow.schemas.tokens import pack, unpack
from tests.builders.trajectories.oracle import ExpectedSession, ExpectedTurn
from tests.properties.oracle.sessions import KnownSession


def answer_of(turn: ExpectedTurn) -> bytes:
    """Return the assistant message of a completed turn."""
    completed = turn.outputs[-1]
    assert isinstance(completed, r.TurnCompleted)
    return completed.message


def check_fork(
    past: ExpectedSession,
    started: r.TurnStarted,
    prompt: list[int],
    session: ExpectedSession,
    stops: Sequence[int] | None,
) -> None:
    """Check that a prompt forks after the longest prefix that any branch has, or is a root if that
    prefix ends no message. `stops` are tokens that end messages; with None any prefix counts. A
    prompt with the same tokens as an earlier one is not taken for an edited one."""
    shared = max(
        (
            _common(prompt, past.path(node, len(past.node(node))))
            for node in range(2 * len(past.turns))
        ),
        default=0,
    )
    forks = shared > 0 if stops is None else any(stop in prompt[:shared] for stop in stops)
    if forks:
        asked = {turn.started.history_key for turn in past.turns}
        again = shared == len(prompt) and started.history_key in asked
        assert started.match_rule == ("same" if again else "render")
        parent = session.path(started.parent_node, started.parent_end)
        assert parent == prompt[:shared], "I5: forks elsewhere than where the tokens leave"
    else:
        assert (started.match_rule, started.parent_node) == ("root", -1)


def check_raw(
    started: r.TurnStarted,
    prompt: list[int],
    past: KnownSession,
    session: ExpectedSession,
    request: r.RequestTurn,
    requests: Mapping[str, r.RequestTurn],
    renderer: Renderer,
) -> None:
    """Check that a plain text continues the longest earlier text and answer it begins with, and
    that ids continue the turn whose tokens they begin with."""
    asked = orjson.loads(request.messages[0])
    text = asked.get("content")
    before = _texts(past.session, requests) if text is not None else []
    fitting = [
        (turn, prefix) for turn, prefix in before if text.startswith(prefix) and text != prefix
    ]
    meant = _meant(fitting, text or "", renderer)
    if meant is not None:
        turn, begun, stopped_by = meant
        equal = [prefix for _, prefix in fitting].count(begun)
        assert started.match_rule == "extend"
        assert started.parent_turn == turn.started.turn_id, "another turn was meant"
        assert started.ambiguous == (equal > 1), "I5: an ambiguity is not marked, or is none"
        ids = _without_stop(past.session, turn, renderer)
        assert prompt == ids + unpack(renderer.encode((text or "")[len(begun + stopped_by) :]))
    elif text is not None:
        assert prompt == unpack(renderer.encode(text))
        check_fork(past.session, started, prompt, session, None)
    else:
        assert prompt == asked["ids"]
        _check_ids(past.session, started, prompt, session, renderer)


def _check_ids(
    past: ExpectedSession,
    started: r.TurnStarted,
    prompt: list[int],
    session: ExpectedSession,
    renderer: Renderer,
) -> None:
    """Check the label of ids, by the last sampled tokens that they share with the session."""
    node, end = started.parent_node, started.parent_end
    while node >= 0 and node % 2 == 0:
        node, end = past.fork(node)
    same = _same_samples(past, node) if node >= 0 else []
    continued = past.turns[node // 2] if same else None
    if continued is None or continued not in same or end < _text_length(continued, renderer):
        check_fork(past, started, prompt, session, None)
        assert started.parent_turn is None
        return
    assert started.match_rule == "extend", "I5: ids that continue a turn are labelled otherwise"
    assert started.parent_turn == continued.started.turn_id
    assert started.ambiguous == (len(same) > 1), "I5: an ambiguity is not marked, or is none"
    assert (
        session.path(started.parent_node, started.parent_end)
        == (prompt[: len(prompt) - len(started.suffix_ids) // 4])
    )


def _same_samples(session: ExpectedSession, node: int) -> list[ExpectedTurn]:
    """Return the completed turns that sampled what `node` holds, behind the same prompt."""
    sampled = session.node(node)
    places = [
        2 * number + 1 for number, turn in enumerate(session.turns) if turn.end == "completed"
    ]
    wanted = session.path(node, len(sampled))
    return [
        session.turns[place // 2]
        for place in places
        if session.node(place) == sampled and session.path(place, len(sampled)) == wanted
    ]


def _meant(
    fitting: list[tuple[ExpectedTurn, str]], text: str, renderer: Renderer
) -> tuple[ExpectedTurn, str, str] | None:
    """Return the latest turn that has most of the text, counting the stop string after its answer,
    which was sampled and so must be in the text."""
    for turn, begun in sorted(reversed(fitting), key=lambda pair: -len(pair[1])):
        completed = turn.outputs[-1]
        sampled = [sample.token for sample in turn.sampled]
        stopped_by = ""
        if getattr(completed, "finish_reason", "") == "stop" and not (
            sampled and sampled[-1] in renderer.stop_token_ids
        ):
            answer = orjson.loads(answer_of(turn)).get("content") or ""
            stopped_by = renderer.decode(pack(sampled)).removeprefix(answer)
        if text[len(begun) :].startswith(stopped_by):
            return turn, begun, stopped_by
    return None


def _texts(
    session: ExpectedSession, requests: Mapping[str, r.RequestTurn]
) -> list[tuple[ExpectedTurn, str]]:
    """Return the completed plain turns, each with its text and its answer's."""
    texts = []
    for turn in session.turns:
        request = requests[turn.started.turn_id]
        prompt = orjson.loads(request.messages[0])
        if request.raw and turn.end == "completed" and "content" in prompt:
            answer = orjson.loads(answer_of(turn)).get("content") or ""
            texts.append((turn, prompt["content"] + answer))
    return texts


def _without_stop(session: ExpectedSession, turn: ExpectedTurn, renderer: Renderer) -> list[int]:
    node = 2 * session.turns.index(turn) + 1
    return session.path(node, _text_length(turn, renderer))


def _text_length(turn: ExpectedTurn, renderer: Renderer) -> int:
    """Return the number of sampled tokens before the stop tokens at the end."""
    ids = [sample.token for sample in turn.sampled]
    while ids and ids[-1] in renderer.stop_token_ids:
        ids = ids[:-1]
    return len(ids)


def _common(prompt: Sequence[int], path: Sequence[int]) -> int:
    pairs = zip(prompt, path, strict=False)
    return next(
        (place for place, (a, b) in enumerate(pairs) if a != b), min(len(prompt), len(path))
    )
