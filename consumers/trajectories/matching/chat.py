"""Longest-prefix matching: where in the tree a request goes on, and which tokens come behind.

Four rules, the strongest first. `extend`: the messages are those of a sampled turn plus new ones,
which the renderer's bridge appends to the exact stored ids. `same`: they are those of an earlier
turn, in the same tokens, to be sampled again. `render`: all is rendered anew and forks where its
tokens leave the tree. `root`: not even the first message is shared. Only `extend` is the usual way;
its cost does not grow with the history beyond reading it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from consumers.trajectories.matching.match import SAME_PROMPT, Match, asked_before
from consumers.trajectories.matching.prompt_renderer import Messages, PromptRenderer
from consumers.trajectories.sessions.message_keys import Strictness, chained, message_key
from consumers.trajectories.sessions.session import Session, Turn, TurnState
from consumers.trajectories.sessions.tree import ROOT, Tree
from schemas.identity import turn_of_tool_call
from schemas.tokens import TOKEN_BYTES


@dataclass(frozen=True, slots=True)
class _Walk:
    """The longest known beginning of a history: candidates behind its first `length` messages."""

    length: int
    turns: Sequence[str]
    history_key: bytes


def match(
    session: Session,
    messages: Sequence[bytes],
    tools: bytes | None,
    shape: bytes,
    renderer: PromptRenderer,
    strictness: Strictness,
    meant: str | None = None,
) -> Match:
    """Matches canonical JSON `messages`. Raises what the renderer raises for bad messages.

    `meant`: the turn that the request says it goes on from.
    """
    walk = _walk(session, messages, shape, strictness)
    offered = orjson.loads(tools) if tools else None
    detail = "no_history" if not session.turns else "edited_history"
    if walk.turns and walk.length < len(messages):
        turn, ambiguous = _choose(session, walk, messages, meant)
        extended = _extend(session.tree, turn, messages[walk.length :], offered, renderer)
        if extended is not None:
            parent, end, suffix, prompt = extended
            return Match(
                "extend",
                parent,
                end,
                suffix,
                _origin(messages[walk.length]),
                prompt,
                walk.history_key,
                tuple(messages[walk.length :]),
                "" if suffix else SAME_PROMPT,
                ambiguous=ambiguous,
                parent_turn=turn.started.turn_id,
            )
        detail = "bridge_refused"
    return _render(session, messages, offered, walk, renderer, detail)


def _walk(
    session: Session, messages: Sequence[bytes], shape: bytes, strictness: Strictness
) -> _Walk:
    key, length, turns = shape, 0, ()  # type: tuple[bytes, int, Sequence[str]]
    for number, message in enumerate(messages, 1):
        key = chained(key, message_key(message, strictness))
        ends = session.ends.get(key)
        if ends is not None:
            length, turns = number, ends
    return _Walk(length, turns, key)


def _choose(
    session: Session, walk: _Walk, messages: Sequence[bytes], meant: str | None
) -> tuple[Turn, bool]:
    """The turn meant among those that read the same, and whether that is a guess."""
    if meant is not None and meant in walk.turns:
        return session.turns[meant], False
    if len(walk.turns) > 1:
        named = _named_turns(orjson.loads(messages[walk.length - 1]))
        told = [turn_id for turn_id in walk.turns if turn_id in named]
        if told:
            return session.turns[told[-1]], False
    return session.turns[walk.turns[-1]], len(walk.turns) > 1


def _named_turns(message: Mapping[str, Any]) -> set[str | None]:
    calls = message.get("tool_calls") or ()
    return {turn_of_tool_call(str(call.get("id", ""))) for call in calls} - {None}


def _extend(
    tree: Tree,
    turn: Turn,
    new_messages: Sequence[bytes],
    tools: Messages | None,
    renderer: PromptRenderer,
) -> tuple[int, int, bytes, bytes] | None:
    if turn.state is not TurnState.COMPLETED:
        return None
    prompt_node, node = tree.nodes[turn.prompt_node], tree.nodes[turn.node]
    completion = bytes(node.ids)
    tail = renderer.tail(bytes(prompt_node.ids))
    if len(tail) == len(prompt_node.ids):
        tail = renderer.tail(tree.path(prompt_node.node_id, prompt_node.length))
    suffix = renderer.bridge(tail, completion, [orjson.loads(m) for m in new_messages], tools)
    if suffix is None:
        return None
    prompt = tree.path(node.node_id, node.length) + suffix
    same = tree.prompt_behind(node, node.length, suffix)
    if same is not None:
        return same.node_id, same.length, b"", prompt
    return node.node_id, node.length, suffix, prompt


def _render(
    session: Session,
    messages: Sequence[bytes],
    tools: Messages | None,
    walk: _Walk,
    renderer: PromptRenderer,
    detail: str,
) -> Match:
    prompt = renderer.render([orjson.loads(message) for message in messages], tools)
    node, end, depth = session.tree.longest_common_prefix(prompt)
    shared = prompt[: depth * TOKEN_BYTES]
    rule = "render"
    if not _ends_a_message(shared, renderer.stop_token_ids):
        rule, node, end, depth = "root", ROOT, 0, 0
    elif shared == prompt and asked_before(session, walk.history_key):
        rule, detail = "same", SAME_PROMPT
    return Match(
        rule,
        node,
        end,
        prompt[depth * TOKEN_BYTES :],
        _origin(messages[-1]),
        prompt,
        walk.history_key,
        tuple(messages),
        detail,
    )


def _ends_a_message(ids: bytes, stop_token_ids: tuple[int, ...]) -> bool:
    tokens = memoryview(ids).cast("i")
    return any(stop in tokens for stop in stop_token_ids)


def _origin(message: bytes) -> str:
    return "tool" if b'"role":"tool"' in message else "prompt"
