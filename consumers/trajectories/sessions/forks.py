"""Copy of a recorded session's beginning into a new session, and its playback. Pure.

The copied turns are completed turns in the new session, with new ids, and requests can extend them.
Their sampled tokens have the origin `forked`, no log-probs and no version. They are never trained.
"""

from collections.abc import Callable
from dataclasses import replace

import xxhash

from seamlessflow.consumers.trajectories.sessions.message_keys import (
    Strictness,
    chained,
    message_key,
)
from seamlessflow.consumers.trajectories.sessions.session import ForkPlace, Session, Turn, TurnState
from seamlessflow.consumers.trajectories.sessions.tree import Node
from seamlessflow.schemas import records as r
from seamlessflow.schemas.forks import PLAYBACK, of_session
from seamlessflow.schemas.tokens import FORKED, TOKEN_BYTES

Strictnesses = Callable[[str], Strictness]
MessageKey = Callable[[bytes, str], bytes]
"""Returns the key for a message and a policy."""

_RULE = "forked"
_BEGUN = r.Sampling()


def copy_fork(session: Session, fork: r.ForkedPrefix, strictness: Strictnesses) -> None:
    """Give a session without turns the beginning `fork`, and drop its content from `opened`.

    Raises `ValueError` or `IndexError` if the prefix contradicts itself.
    """

    def keys(message: bytes, policy: str) -> bytes:
        return message_key(message, strictness(policy))

    mine = of_session(fork, session.session_id)
    turns: list[Turn] = []
    for recorded, copied in zip(fork.turns, mine.turns, strict=True):
        turn = _copied(session, copied, turns, keys)
        turn.copied_from = recorded.prompt.turn_id
        turns.append(turn)
        session.turns[turn.started.turn_id] = turn
        end = chained(turn.started.history_key, keys(turn.message, copied.prompt.policy))
        session.ends.setdefault(end, []).append(turn.started.turn_id)
    session.fork = _place(session, mine, turns, keys)
    content_gone = replace(fork, turns=(), prompt=None)
    session.opened = replace(session.opened, fork=content_gone)


def play_back(session: Session, event: r.TurnPlayedBack) -> Turn | None:
    """Note a request that a copied turn answered; return the turn, or None if it is too late.

    The turn takes over the request's data, so that retries find it like any other turn.
    """
    turn = session.turns.get(event.turn_id)
    late = session.closed is not None or event.command_id in session.commands
    if turn is None or not turn.forked or late:
        return None
    session.commands.add(event.command_id)
    turn.started = replace(
        turn.started,
        reply=event.reply,
        idempotency_key=event.idempotency_key,
        retry_count=event.retry_count,
        body_hash=event.body_hash,
        choice=event.choice,
    )
    turn.played = True
    turn.undelivered = False
    turn.waiting = [] if event.reply is None else [event.reply]
    turn.last_progress_ms = session.last_activity_ms = event.at_ms
    if event.idempotency_key is not None:
        session.idempotency[event.idempotency_key, event.choice] = event.turn_id
    return turn


def copied_node(node: Node, start: int, turn: Turn | None) -> r.TrajectoryNode:
    """Return a copied node; without a turn, the prompt's node behind which the session goes on."""
    return r.TrajectoryNode(
        node_id=node.node_id,
        parent=node.parent,
        parent_end=node.parent_end,
        start=start,
        length=node.length,
        origin=node.origin,
        turn_id=node.turn_id,
        policy=turn.started.policy if turn and node.sampled else "",
        module=turn.started.module if turn else "",
        finish_reason=turn.finish_reason if turn and node.sampled else "",
        match_rule=FORKED,
        masked_reason=FORKED if node.sampled else "",
        log_offset=node.log_offset,
    )


def _copied(session: Session, copied: r.ForkedTurn, turns: list[Turn], keys: MessageKey) -> Turn:
    prompt = _grow(session, copied.prompt, turns)
    sampled = session.tree.grow(
        prompt.node_id, prompt.length, FORKED, prompt.turn_id, session.first_offset
    )
    sampled.ids += _whole(copied.ids)
    started = _started(session, copied.prompt, prompt, turns, keys)
    return Turn(
        started,
        prompt.node_id,
        sampled.node_id,
        [],
        session.opened.at_ms,
        TurnState.COMPLETED,
        finish_reason=copied.finish_reason,
        stop_sequence=copied.stop_sequence,
        reasoning_tokens=copied.reasoning_tokens,
        message=copied.message,
    )


def _started(
    session: Session,
    copied: r.ForkedPrompt,
    prompt: Node,
    turns: list[Turn],
    keys: MessageKey,
) -> r.TurnStarted:
    opened = session.opened
    path = session.tree.path(prompt.node_id, prompt.length)
    return r.TurnStarted(
        session_id=opened.session_id,
        epoch=opened.epoch,
        at_ms=opened.at_ms,
        command_id=opened.command_id,
        turn_id=copied.turn_id,
        parent_node=prompt.parent,
        parent_end=prompt.parent_end,
        suffix_ids=b"",
        suffix_origin=copied.origin,
        prompt_length=len(path) // TOKEN_BYTES,
        prompt_hash=xxhash.xxh3_128_digest(path),
        match_rule=_RULE,
        parent_turn=_parent_id(copied, turns),
        new_messages=copied.messages,
        history_key=_history_key(copied, turns, keys),
        tools=copied.tools,
        sampling_requested=_BEGUN,
        sampling_effective=_BEGUN,
        behavior_exact=True,
        policy=copied.policy,
        module=copied.module,
        own_messages=copied.own_messages,
        raw=copied.raw,
        prefill=copied.prefill,
        stream=False,
        deadline_ms=opened.at_ms,
        body_hash=b"",
    )


def _place(
    session: Session, fork: r.ForkedPrefix, turns: list[Turn], keys: MessageKey
) -> ForkPlace:
    """Return the place where the session goes on; its tokens must equal the prefix's."""
    if fork.prompt is None:
        last = turns[-1]
        node = session.tree.nodes[last.node]
        place = ForkPlace(session.tree.nodes[last.node].length)
    else:
        node = _grow(session, fork.prompt, turns)
        place = ForkPlace(
            node.length,
            node.node_id,
            _history_key(fork.prompt, turns, keys),
            _parent_id(fork.prompt, turns),
            fork.prompt.messages,
            playback=fork.mode == PLAYBACK,
        )
    path = session.tree.path(node.node_id, node.length)
    if len(path) != fork.length * TOKEN_BYTES or xxhash.xxh3_128_digest(path) != fork.hash:
        raise ValueError("the copied tokens are not those of the recorded prompt")
    return place


def _grow(session: Session, prompt: r.ForkedPrompt, turns: list[Turn]) -> Node:
    """Add the prompt's tokens behind the tokens that the tree already has."""
    tree = session.tree
    ids = _whole(prompt.ids)
    if prompt.parent < 0:
        node_id, end, depth = tree.longest_common_prefix(ids)
        ids = ids[depth * TOKEN_BYTES :]
    else:
        node_id = turns[prompt.parent].node
        end = prompt.parent_end
        if not tree.holds(node_id, end):
            raise ValueError(f"{end} tokens of a turn with {tree.nodes[node_id].length} are kept")
        same = tree.prompt_behind(tree.nodes[node_id], end, ids)
        if same is not None:
            node_id = same.node_id
            end = same.length
            ids = b""
    grown = tree.grow(node_id, end, prompt.origin, prompt.turn_id, session.first_offset)
    grown.ids += ids
    return grown


def _history_key(prompt: r.ForkedPrompt, turns: list[Turn], keys: MessageKey) -> bytes:
    """Return the key under which a request with these messages is found.

    It is the recorded key, unless ids in messages count, since these ids differ here.
    """
    if prompt.parent < 0 or prompt.raw:
        return prompt.history_key
    parent = turns[prompt.parent]
    key = chained(parent.started.history_key, keys(parent.message, prompt.policy))
    for message in prompt.messages:
        key = chained(key, keys(message, prompt.policy))
    return key


def _parent_id(prompt: r.ForkedPrompt, turns: list[Turn]) -> str | None:
    return turns[prompt.parent].started.turn_id if prompt.parent >= 0 else None


def _whole(ids: bytes) -> bytes:
    if len(ids) % TOKEN_BYTES:
        raise ValueError(f"{len(ids)} bytes are no whole number of token ids")
    return ids
