"""A recorded session's beginning, copied exactly, with which new sessions can begin. Pure.

A place is a turn's prompt, or its answer's end. Each tool call before it must have its result,
since no agent can go on without one.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import orjson
import xxhash

from seamlessflow.consumers.trajectories.sessions.session import Session, Turn, TurnState
from seamlessflow.consumers.trajectories.sessions.tree import common_length
from seamlessflow.infra.errors import SeamlessFlowError
from seamlessflow.schemas.forks import BEHIND_ANSWER, BEHIND_PROMPT, MIDDLE, PLAYBACK, history
from seamlessflow.schemas.records import ForkedPrefix, ForkedPrompt, ForkedTurn, ForkOrigin
from seamlessflow.schemas.tokens import TOKEN_BYTES


class NotForkable(SeamlessFlowError):
    """A place in a recorded session at which no other session can begin."""

    def __init__(self, session_id: str, turn_id: str, reason: str) -> None:
        self.session_id = session_id
        self.turn_id = turn_id
        self.reason = reason
        super().__init__(f"session {session_id} cannot be forked at turn {turn_id}: {reason}")


@dataclass(frozen=True, slots=True)
class RecordedOn:
    """The log that has a recorded session."""

    partition: int
    cluster: str = ""
    """The Kafka cluster's id; empty if it is not known."""
    topic_prefix: str = ""


def forked_prefix(
    session: Session,
    turn_id: str,
    log: RecordedOn,
    mode: str = MIDDLE,
    behind: str = BEHIND_PROMPT,
    appended: Sequence[bytes] = (),
) -> ForkedPrefix:
    """Return the session's beginning up to a turn; `behind`: its prompt or its answer.

    `appended`: messages in canonical JSON that agents add there first. Raises `NotForkable`.
    """
    turn = session.turns.get(turn_id)
    if turn is None or session.failed:
        reason = "the session failed" if session.failed else "the session has no such turn"
        raise NotForkable(session.session_id, turn_id, reason)
    _check_kind(session, turn, mode, behind, appended)
    chosen = _earlier(session, turn) if mode == PLAYBACK else _path_to(session, turn)
    if behind == BEHIND_ANSWER:
        chosen.append(turn)
    _check_media(session, turn_id, [*chosen, turn])
    numbers = {member.started.turn_id: number for number, member in enumerate(chosen)}
    before = _ids_before(session, turn, behind)
    made = ForkedPrefix(
        origin=ForkOrigin(
            cluster=log.cluster,
            topic_prefix=log.topic_prefix,
            partition=log.partition,
            session_id=session.session_id,
            turn_id=turn_id,
            offset=session.tree.nodes[turn.prompt_node].log_offset,
            behind=behind,
        ),
        mode=mode,
        policy=turn.started.policy,
        tokenizer_hash=session.opened.tokenizer_hash,
        turns=tuple(_turn(session, member, numbers) for member in chosen),
        prompt=_prompt(session, turn, numbers, before) if behind == BEHIND_PROMPT else None,
        length=len(before) // TOKEN_BYTES,
        hash=xxhash.xxh3_128_digest(before),
        appended=tuple(appended),
    )
    _check_calls(made)
    return made


def unanswered_calls(messages: Iterable[bytes]) -> list[str]:
    """Return the ids of tool calls without a result among these messages, in canonical JSON."""
    waiting: dict[str, None] = {}
    for message in map(orjson.loads, messages):
        waiting |= dict.fromkeys(str(call.get("id")) for call in message.get("tool_calls") or ())
        waiting.pop(str(message.get("tool_call_id")), None)
    return list(waiting)


def _check_kind(
    session: Session, turn: Turn, mode: str, behind: str, appended: Sequence[bytes]
) -> None:
    def refuse(reason: str) -> NotForkable:
        return NotForkable(session.session_id, turn.started.turn_id, reason)

    if mode not in (MIDDLE, PLAYBACK) or behind not in (BEHIND_PROMPT, BEHIND_ANSWER):
        raise refuse(f"unknown kind {mode!r}, behind {behind!r}")
    if mode == PLAYBACK and (behind == BEHIND_ANSWER or appended):
        raise refuse(
            "an agent that plays back asks for the recorded prompt, with nothing behind it"
        )
    if behind == BEHIND_ANSWER and turn.state is not TurnState.COMPLETED:
        raise refuse(f"the turn has no whole answer: it is {turn.state}")
    if behind == BEHIND_ANSWER and not appended:
        raise refuse("behind an answer the agent must append a message")


def _check_media(session: Session, turn_id: str, turns: Iterable[Turn]) -> None:
    for turn in turns:
        if turn.started.media:
            reason = f"turn {turn.started.turn_id} has {len(turn.started.media)} media"
            raise NotForkable(session.session_id, turn_id, f"{reason}, which are not copied")


def _check_calls(made: ForkedPrefix) -> None:
    missing = unanswered_calls(history(made))
    if missing:
        reason = f"tool calls without a result: {', '.join(missing)}"
        raise NotForkable(made.origin.session_id, made.origin.turn_id, reason)


def _path_to(session: Session, turn: Turn) -> list[Turn]:
    """Return the turns that a turn's history goes on from, the oldest first."""
    path: list[Turn] = []
    while turn.started.parent_turn is not None:
        turn = session.turns[turn.started.parent_turn]
        path.append(turn)
    return path[::-1]


def _earlier(session: Session, turn: Turn) -> list[Turn]:
    """Return all completed turns that began before a turn, including those beside its path."""
    every = list(session.turns.values())
    return [other for other in every[: every.index(turn)] if other.state is TurnState.COMPLETED]


def _turn(session: Session, turn: Turn, numbers: Mapping[str, int]) -> ForkedTurn:
    whole = session.tree.path(turn.prompt_node, session.tree.nodes[turn.prompt_node].length)
    return ForkedTurn(
        prompt=_prompt(session, turn, numbers, whole, turn.started.prefill),
        ids=bytes(session.tree.nodes[turn.node].ids),
        message=turn.message,
        finish_reason=turn.finish_reason,
        stop_sequence=turn.stop_sequence,
        reasoning_tokens=turn.reasoning_tokens,
    )


def _prompt(
    session: Session, turn: Turn, numbers: Mapping[str, int], whole: bytes, prefill: int = 0
) -> ForkedPrompt:
    """Return the prompt whose ids are `whole`, as it stands behind the turn that it extends.

    Its last `prefill` tokens begin the answer.
    """
    started = turn.started
    kept = 0
    ids = whole
    parent = session.turns.get(started.parent_turn or "")
    if parent is not None:
        node = session.tree.nodes[parent.prompt_node]
        before = len(session.tree.path(node.node_id, node.length))
        sampled = bytes(session.tree.nodes[parent.node].ids)
        kept = common_length(
            np.frombuffer(sampled, np.int32), np.frombuffer(whole[before:], np.int32)
        )
        ids = whole[before + kept * TOKEN_BYTES :]
    return ForkedPrompt(
        turn_id=started.turn_id,
        parent=-1 if parent is None else numbers[parent.started.turn_id],
        parent_end=kept,
        ids=ids,
        origin=started.suffix_origin,
        messages=started.new_messages,
        history_key=started.history_key,
        tools=started.tools,
        policy=started.policy,
        module=started.module,
        own_messages=started.own_messages,
        raw=started.raw,
        prefill=prefill,
    )


def _ids_before(session: Session, turn: Turn, behind: str) -> bytes:
    """Return all ids before the place. An answer's forced beginning is no part of its prompt."""
    tree = session.tree
    if behind == BEHIND_ANSWER:
        return tree.path(turn.node, tree.nodes[turn.node].length)
    prompt = tree.path(turn.prompt_node, tree.nodes[turn.prompt_node].length)
    return prompt[: len(prompt) - turn.started.prefill * TOKEN_BYTES]
