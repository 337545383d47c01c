"""Longest-prefix matching of messages: where a request continues its session's tree. Pure.

Four rules, the strongest first:

- `extend`: a sampled turn's messages plus new ones. The renderer's bridge appends the new ones
  to the exact ids that were sampled. This is the usual case. A longer history costs only more
  hashing. The new messages may include answers that the policy did not sample
  (`foreign_answer`). Without new messages the policy answers once more behind its own answer
  (`answer_last`).
- `same`: an earlier turn's messages, which render to the same tokens; another sample.
- `render`: the whole history is rendered anew and forks where its tokens leave the tree.
- `root`: the tree does not even share the first message.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from seamlessflow.consumers.trajectories.matching.match import (
    SAME_PROMPT,
    Match,
    PromptRenderer,
    RequestMessages,
    asked_before,
    fork_point,
)
from seamlessflow.consumers.trajectories.sessions.message_keys import (
    STRICTNESSES,
    Strictness,
    chained,
    message_key,
)
from seamlessflow.consumers.trajectories.sessions.session import Session, Turn, TurnState
from seamlessflow.consumers.trajectories.sessions.tree import ROOT, Tree
from seamlessflow.schemas.identity import turn_of_tool_call
from seamlessflow.schemas.json_text import read_json
from seamlessflow.schemas.tokens import TOKEN_BYTES


@dataclass(frozen=True, slots=True)
class _Walk:
    """A history's longest known beginning: message count, and the turns that end there."""

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
    named: str | None = None,
) -> Match:
    """Match `messages`, each as canonical JSON. Raises the renderer's errors for bad messages.

    `named`: id of the turn that the request says it continues.
    """
    walk = _walk(session, messages, shape, strictness)
    copied = fork_point(session, walk.history_key)
    if copied is not None:
        return copied
    offered = read_json(tools) if tools else None
    detail = "no_history" if not session.turns else "edited_history"
    if walk.turns:
        turn, ambiguous = _choose(session, walk, messages, named)
        new = [orjson.loads(message) for message in messages[walk.length :]]
        extended = _extend(session.tree, turn, new, offered, renderer)
        if extended is not None:
            parent, end, suffix, prompt = extended
            return Match(
                "extend",
                parent,
                end,
                suffix,
                "tool" if new and new[0].get("role") == "tool" else "prompt",
                prompt,
                walk.history_key,
                tuple(messages[walk.length :]),
                _detail(new) if suffix else SAME_PROMPT,
                ambiguous=ambiguous,
                parent_turn=turn.started.turn_id,
                answer_differs=_differs(session, messages[walk.length - 1], turn.message),
            )
        detail = "bridge_refused"
    return _render(session, messages, offered, walk, renderer, detail)


def _walk(
    session: Session, messages: Sequence[bytes], shape: bytes, strictness: Strictness
) -> _Walk:
    key = shape
    length = 0
    turns: Sequence[str] = ()
    for number, message in enumerate(messages, 1):
        key = chained(key, message_key(message, strictness))
        ends = session.ends.get(key)
        if ends is not None:
            length = number
            turns = ends
    return _Walk(length, turns, key)


def _choose(
    session: Session, walk: _Walk, messages: Sequence[bytes], named: str | None
) -> tuple[Turn, bool]:
    """Return the turn to continue among turns with equal messages, and True if it is a guess."""
    if named is not None and named in walk.turns:
        return session.turns[named], False
    turns = list(walk.turns)
    if len(turns) > 1:
        # Keys leave out tool-call ids, but the gateway wrote each turn's id into its calls' ids.
        answer = orjson.loads(messages[walk.length - 1])
        of_calls = _turns_of_calls(answer)
        candidates = [turn_id for turn_id in turns if turn_id in of_calls]
        if candidates:
            return session.turns[candidates[-1]], False
        # Keys leave out the text beside calls too.
        turns = [turn for turn in turns if _same_text(session.turns[turn], answer)] or turns
    return session.turns[turns[-1]], len(turns) > 1


def _same_text(turn: Turn, answer: Mapping[str, Any]) -> bool:
    sampled = orjson.loads(turn.message).get("content")
    return (sampled or "") == (answer.get("content") or "")


def _differs(session: Session, repeated: bytes, sampled: bytes) -> tuple[str, ...]:
    """Return the strictnesses by which the messages are not equal."""
    if repeated == sampled:
        return ()
    return tuple(
        strictness
        for strictness in STRICTNESSES
        if message_key(repeated, strictness) != message_key(sampled, strictness)
    )


def _turns_of_calls(message: Mapping[str, Any]) -> set[str | None]:
    calls = message.get("tool_calls") or ()
    return {turn_of_tool_call(str(call.get("id", ""))) for call in calls} - {None}


def _extend(
    tree: Tree,
    turn: Turn,
    new_messages: RequestMessages,
    tools: RequestMessages | None,
    renderer: PromptRenderer,
) -> tuple[int, int, bytes, bytes] | None:
    if turn.state is not TurnState.COMPLETED:
        return None
    prompt_node = tree.nodes[turn.prompt_node]
    node = tree.nodes[turn.node]
    completion = bytes(node.ids)
    # The prompt's last node usually holds everything that the bridge reads, even in a long history.
    tail = renderer.tail(bytes(prompt_node.ids))
    if len(tail) == len(prompt_node.ids):
        tail = renderer.tail(tree.path(prompt_node.node_id, prompt_node.length))
    suffix = renderer.bridge(tail, completion, new_messages, tools)
    if suffix is None:
        return None
    prompt = tree.path(node.node_id, node.length) + suffix
    same = tree.prompt_behind(node, node.length, suffix)
    if same is not None:
        return same.node_id, same.length, b"", prompt
    return node.node_id, node.length, suffix, prompt


def _detail(new_messages: RequestMessages) -> str:
    if not new_messages:
        return "answer_last"
    foreign = any(message.get("role") == "assistant" for message in new_messages)
    return "foreign_answer" if foreign else ""


def _render(
    session: Session,
    messages: Sequence[bytes],
    tools: RequestMessages | None,
    walk: _Walk,
    renderer: PromptRenderer,
    detail: str,
) -> Match:
    prompt = renderer.render([orjson.loads(message) for message in messages], tools)
    node, end, depth = session.tree.longest_common_prefix(prompt)
    shared = prompt[: depth * TOKEN_BYTES]
    rule = "render"
    if shared == prompt and asked_before(session, walk.history_key):
        rule = "same"
        detail = SAME_PROMPT
    # Without a whole common message, the shared tokens are only the template's beginning.
    elif not _ends_a_message(shared, renderer.stop_token_ids):
        rule = "root"
        node = ROOT
        end = 0
        depth = 0
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
