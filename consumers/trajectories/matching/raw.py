"""Matching of prompts without a chat template: plain text or token ids. Pure.

A text may begin with a whole earlier turn, prompt and answer. It then continues that turn's exact
ids, and only its new end is tokenised. A stop string that ended the turn is in these ids but not in
the answer, and the text must repeat it. Ids that begin with a whole earlier turn continue it where
they leave the tree. Everything else forks at that place, and text is tokenised whole. If its tokens
do not leave the tree, the turn is another sample.
"""

from dataclasses import replace
from typing import Any

import orjson

from seamlessflow.consumers.trajectories.matching.match import (
    SAME_PROMPT,
    Match,
    TextEncoder,
    asked_before,
    fork_point,
)
from seamlessflow.consumers.trajectories.sessions.message_keys import chained, message_key
from seamlessflow.consumers.trajectories.sessions.session import Session, Turn, TurnState
from seamlessflow.consumers.trajectories.sessions.tree import ROOT, Node
from seamlessflow.schemas.tokens import TOKEN_BYTES, pack, unpack

_INT32 = range(2**31)


def match_raw(
    session: Session, message: bytes, policy: str, shape: bytes, encoder: TextEncoder
) -> Match:
    """Match `{"role": "raw", "content": text}` or `{"role": "raw", "ids": [...]}`.

    `stop_token_ids` beside ids: tokens at which the client expects an answer to end. Raises
    `ValueError` if the policy's answers do not end at one of them, and for anything else.
    """
    asked = orjson.loads(message)
    _refuse_other_stops(asked, encoder.stop_token_ids)
    key = chained(shape, message_key(message, "exact"))
    text = asked.get("content")
    copied = fork_point(session, key)
    if copied is not None:
        return copied
    if isinstance(text, str):
        extended = _extended(session, text, policy, key, encoder)
        if extended is not None:
            return extended
        return _forked(session, _not_empty(encoder.encode(text)), message, key)
    forked = _forked(session, _not_empty(_ids_in(asked, "ids")), message, key)
    return _named(session, forked, policy, encoder.stop_token_ids)


def _refuse_other_stops(asked: dict[str, Any], stop_token_ids: tuple[int, ...]) -> None:
    stops = unpack(_ids_in(asked, "stop_token_ids")) if "stop_token_ids" in asked else ()
    if others := sorted({*stops} - {*stop_token_ids}):
        ends = list(stop_token_ids)
        raise ValueError(f"stop_token_ids: answers of this policy end at {ends}, not at {others}")


def _not_empty(prompt: bytes) -> bytes:
    if not prompt:
        raise ValueError("the prompt is empty")
    return prompt


def _extended(
    session: Session, text: str, policy: str, key: bytes, encoder: TextEncoder
) -> Match | None:
    """Continue the turn that the text repeats longest; among equal ones, the latest."""
    begun = [
        (turn, whole)
        for turn, whole in _whole_texts(session)
        if turn.started.policy == policy and text.startswith(whole) and len(text) > len(whole)
    ]
    # Longest first. Among equal ones the latest is first, since sorting keeps the reversed order.
    for turn, whole in sorted(reversed(begun), key=lambda pair: -len(pair[1])):
        extended = _behind(session, turn, text[len(whole) :], key, encoder)
        if extended is not None:
            equal = sum(len(other) == len(whole) for _, other in begun)
            return replace(extended, ambiguous=equal > 1)
    return None


def _whole_texts(session: Session) -> list[tuple[Turn, str]]:
    """Return the completed raw turns, each with its whole text: prompt and answer."""
    texts: dict[str, str] = {}
    for turn_id, turn in session.turns.items():
        if turn.started.raw and turn.state is TurnState.COMPLETED:
            new = [orjson.loads(message).get("content") for message in turn.started.new_messages]
            before = texts.get(turn.started.parent_turn or "", "")
            if all(isinstance(text, str) for text in new):
                texts[turn_id] = before + "".join(new) + _answer(turn)
    return [(session.turns[turn_id], text) for turn_id, text in texts.items()]


def _answer(turn: Turn) -> str:
    return orjson.loads(turn.message).get("content") or ""


def _behind(
    session: Session, turn: Turn, rest: str, key: bytes, encoder: TextEncoder
) -> Match | None:
    node = session.tree.nodes[turn.node]
    end = _end_of_text(bytes(node.ids), encoder.stop_token_ids)
    # If no stop token ends the turn, a string stopped it, and the answer leaves that string out.
    stopped_by = ""
    if turn.finish_reason == "stop" and end == node.length:
        stopped_by = encoder.decode(bytes(node.ids)).removeprefix(_answer(turn))
    if not rest.startswith(stopped_by):
        return None
    suffix = encoder.encode(rest[len(stopped_by) :])
    prompt = session.tree.path(node.node_id, end) + suffix
    same = session.tree.prompt_behind(node, end, suffix)
    place = (node.node_id, end, suffix) if same is None else (same.node_id, same.length, b"")
    return Match(
        "extend",
        *place,
        "prompt",
        prompt,
        key,
        (orjson.dumps({"content": rest, "role": "raw"}),),
        "" if same is None else SAME_PROMPT,
        parent_turn=turn.started.turn_id,
    )


def _end_of_text(ids: bytes, stop_token_ids: tuple[int, ...]) -> int:
    """Return how many tokens stand before the stop tokens at the end."""
    tokens = memoryview(ids).cast("i")
    end = len(tokens)
    while end and tokens[end - 1] in stop_token_ids:
        end -= 1
    return end


def _ids_in(asked: dict[str, Any], name: str) -> bytes:
    ids = asked.get(name)
    if not isinstance(ids, list) or not all(
        type(number) is int and number in _INT32 for number in ids
    ):
        raise ValueError("a plain prompt must be text or token ids")
    return pack(ids)


def _named(session: Session, forked: Match, policy: str, stop_token_ids: tuple[int, ...]) -> Match:
    """Return the match as an extension of the turn that the ids begin with, if any."""
    place = forked.parent_node
    end = forked.parent_end
    while place != ROOT and not session.tree.nodes[place].sampled:
        place, end = session.tree.nodes[place].parent, session.tree.nodes[place].parent_end
    if place == ROOT:
        return forked
    node = session.tree.nodes[place]
    same = [sample for sample in _samples(session, node) if sample.started.policy == policy]
    begun = end >= _end_of_text(bytes(node.ids), stop_token_ids)
    if not begun or node.turn_id not in [sample.started.turn_id for sample in same]:
        return forked
    length = len(session.tree.path(place, end))
    new = {"ids": unpack(forked.prompt_ids[length:]), "role": "raw"}
    return replace(
        forked,
        rule="extend",
        detail=forked.detail if forked.rule == "same" else "",
        new_messages=(orjson.dumps(new),),
        parent_turn=node.turn_id,
        ambiguous=len(same) > 1,
    )


def _samples(session: Session, node: Node) -> list[Turn]:
    """Return the completed turns that sampled exactly the tokens in `node` behind its prompt."""
    tree = session.tree
    turns = session.turns.values()
    ended = [turn for turn in turns if turn.state is TurnState.COMPLETED]
    same = [turn for turn in ended if tree.nodes[turn.node].ids == node.ids]
    path = tree.path(node.node_id, node.length)
    return [turn for turn in same if tree.path(turn.node, node.length) == path]


def _forked(session: Session, prompt: bytes, message: bytes, key: bytes) -> Match:
    node, end, depth = session.tree.longest_common_prefix(prompt)
    suffix = prompt[depth * TOKEN_BYTES :]
    rule = "render"
    detail = "edited_history" if session.turns else "no_history"
    if node == ROOT:
        rule = "root"
    elif not suffix and asked_before(session, key):
        rule = "same"
        detail = SAME_PROMPT
    return Match(
        rule,
        node,
        end,
        suffix,
        "prompt",
        prompt,
        key,
        (message,),
        detail,
    )
