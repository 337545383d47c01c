"""Matching of prompts that no chat template is laid around: plain text, or token ids. Pure.

A text that begins with all of an earlier turn, prompt and answer, goes on from that turn's exact
ids; what is new is tokenised alone. Everything else is tokenised whole and forks where its tokens
leave the tree, as ids given by the agent do.
"""

from collections.abc import Iterator
from typing import Any, Protocol

import orjson

from consumers.trajectories.match import Match
from consumers.trajectories.messages import chained, message_key
from consumers.trajectories.session import Session, Turn, TurnState
from consumers.trajectories.tree import ROOT, TOKEN_BYTES

_INT32 = range(2**31)


class TextEncoder(Protocol):
    """What matching plain text needs of `infra.rendering.Renderer`."""

    @property
    def stop_token_ids(self) -> tuple[int, ...]:
        """Tokens that end a completion; they are in no text."""
        ...

    def encode(self, text: str) -> bytes:
        """Ids of a text."""
        ...


def match_raw(session: Session, message: bytes, shape: bytes, encoder: TextEncoder) -> Match:
    """Matches `{"role": "raw", "content": text}` or `{"role": "raw", "ids": [...]}`.

    Raises `ValueError` for what is neither.
    """
    asked = orjson.loads(message)
    key = chained(shape, message_key(message, "exact"))
    text = asked.get("content")
    if isinstance(text, str):
        for turn, known in _texts(session):
            if text.startswith(known) and len(text) > len(known):
                return _extended(session, turn, text[len(known) :], key, encoder)
    prompt = encoder.encode(text) if isinstance(text, str) else _given_ids(asked)
    if not prompt:
        raise ValueError("the prompt is empty")
    return _forked(session, prompt, message, key)


def _texts(session: Session) -> Iterator[tuple[Turn, str]]:
    """Completed raw turns with all their text, the longest first."""
    texts: dict[str, str] = {}
    for turn_id, turn in session.turns.items():
        if turn.started.raw and turn.state is TurnState.COMPLETED:
            new = [orjson.loads(message).get("content") for message in turn.started.new_messages]
            before = texts.get(turn.started.parent_turn or "", "")
            if all(isinstance(text, str) for text in new):
                answer = orjson.loads(turn.message).get("content") or ""
                texts[turn_id] = before + "".join(new) + answer
    for turn_id, text in sorted(texts.items(), key=lambda item: -len(item[1])):
        yield session.turns[turn_id], text


def _extended(session: Session, turn: Turn, rest: str, key: bytes, encoder: TextEncoder) -> Match:
    node = session.tree.nodes[turn.node]
    end = node.length
    ids = memoryview(node.ids).cast("i")
    while end and ids[end - 1] in encoder.stop_token_ids:
        end -= 1
    ids.release()
    suffix = encoder.encode(rest)
    return Match(
        "extend",
        node.node_id,
        end,
        suffix,
        "prompt",
        session.tree.path(node.node_id, end) + suffix,
        key,
        (orjson.dumps({"content": rest, "role": "raw"}),),
        parent_turn=turn.started.turn_id,
    )


def _given_ids(asked: dict[str, Any]) -> bytes:
    ids = asked.get("ids")
    if not isinstance(ids, list) or not all(type(one) is int and one in _INT32 for one in ids):
        raise ValueError("a plain prompt must be text or token ids")
    return b"".join(one.to_bytes(TOKEN_BYTES, "little") for one in ids)


def _forked(session: Session, prompt: bytes, message: bytes, key: bytes) -> Match:
    node, end, depth = session.tree.longest_common_prefix(prompt)
    return Match(
        "root" if node == ROOT else "render",
        node,
        end,
        prompt[depth * TOKEN_BYTES :],
        "prompt",
        prompt,
        key,
        (message,),
        "edited_history" if session.turns else "no_history",
    )
