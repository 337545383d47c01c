"""A session's events, rewritten so that the fold merges them by other rules. Pure.

What an engine saw and sampled is a fact and stays: ids, log-probs and versions. Three things are
rewritten: the rules that the events name, the rewards, and the places in the tree where recorded
prompts fork.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import xxhash

from seamlessflow.consumers.trajectories.sessions.session import Session
from seamlessflow.consumers.trajectories.sessions.tree import Node
from seamlessflow.recorded.merge.rules import RECORDED, MergeRules
from seamlessflow.recorded.select.refold import Rewrite, unchanged
from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Record, Reward
from seamlessflow.schemas.tokens import TOKEN_BYTES

RETHREADED = "tokens"
"""Match rule for a turn that continues another branch than the recorded one."""
_LATEST = 2**31 - 1
_SOURCE = "replay"


def rewriting(rules: MergeRules) -> Rewrite:
    """Return the rewriting of one partition's events under the rules."""
    return unchanged if rules == RECORDED else _Rewriting(rules).apply


class _Rewriting:
    """Rewriting of a partition's events, and its open sessions' recorded places."""

    def __init__(self, rules: MergeRules) -> None:
        self._rules = rules
        self._session = _given(rules, "fold_version", "purpose")
        self._turn = _given(rules, "train_inexact", "train_undelivered", "siblings")
        self._depths: dict[str, list[int]] = {}
        """By session, the recorded depth in tokens at which each of its nodes begins."""

    def apply(self, session: Session | None, event: Record) -> Iterable[Record]:
        """Return the events to fold instead of `event`; `session` is its session before it."""
        match event:
            case r.SessionOpened():
                if session is None:
                    self._depths[event.session_id] = []
                return (replace(event, **self._session),)
            case r.TurnStarted() if session is not None:
                return (self._turn_started(session, event),)
            case r.SessionFinalized() if session is not None:
                return (*self._rewards(session, event), event)
        return (event,)

    def _turn_started(self, session: Session, event: r.TurnStarted) -> r.TurnStarted:
        started = replace(event, **self._turn) if self._turn else event
        if event.turn_id in session.turns or session.closed is not None:
            return started
        prompt = self._prompt(session, event)
        if prompt is None:
            return started
        size = TOKEN_BYTES * event.prompt_length
        if len(prompt) != size or xxhash.xxh3_128_digest(prompt) != event.prompt_hash:
            # No worker confirms this hash, so the turn is masked as `prompt_mismatch`.
            started = replace(started, prompt_hash=b"")
        if self._rules.threads == "tokens":
            return _rethreaded(session, started, prompt)
        return started

    def _prompt(self, session: Session, event: r.TurnStarted) -> bytes | None:
        """Return the recorded prompt, or None if the fold will refuse the event.

        Node ids are the same whatever the threads are: each turn adds two nodes, and a fork always
        adds the same ones. The token count before a node may differ, so a place is found by its
        recorded depth.
        """
        depths = self._depths[session.opened.session_id]
        if not depths:  # before the first turn the tree has only what a fork copied
            depths += [_depth(session, node) for node in session.tree.nodes]
        parent = event.parent_node
        path = b""
        depth = 0
        if parent >= len(depths):
            return None
        if parent >= 0:
            path = session.tree.path(parent, session.tree.nodes[parent].length)
            depth = depths[parent] + event.parent_end
        if depth * TOKEN_BYTES > len(path):
            return None
        depths += [depth, depth + len(event.suffix_ids) // TOKEN_BYTES]
        return path[: depth * TOKEN_BYTES] + event.suffix_ids

    def _rewards(self, session: Session, event: r.SessionFinalized) -> Iterable[Record]:
        """Yield the rewards that the rules give a session when it ends."""
        if session.closed is None or session.finalized_at_ms is not None:
            return
        del self._depths[session.opened.session_id]
        recorded = list(session.rewards.values())
        further = self._late(session)
        for number, reward in enumerate(further):
            yield _assigned(event, reward, f"late {number}")
        judged = self._rules.judged.get(session.opened.session_id)
        if judged is not None:
            further.append(judged)
            yield _assigned(event, judged, "judged")
        values = {
            reward.name: reward.value
            for reward in (*recorded, *further)
            if reward.scope == "session" and reward.name in self._rules.return_of
        }
        if values:
            weights = self._rules.return_of
            total = sum(weights[name] * value for name, value in values.items())
            # Behind the judgement, which it replaces if that is also a return.
            yield _assigned(event, Reward(value=total, source=_SOURCE), "return")

    def _late(self, session: Session) -> list[Reward]:
        """Return the late rewards from judges without which the session ended."""
        rewards = self._rules.late.get(session.opened.session_id, ())
        lacking = session.lacking_judges
        return [reward for reward in rewards if reward.name in lacking]


def _depth(session: Session, node: Node) -> int:
    return len(session.tree.path(node.parent, node.parent_end)) // TOKEN_BYTES


def _given(rules: MergeRules, *names: str) -> Mapping[str, Any]:
    """Return the named fields whose rule differs from the recorded ones."""
    values = {name: getattr(rules, name) for name in names}
    return {name: value for name, value in values.items() if value is not None}


def _rethreaded(session: Session, event: r.TurnStarted, prompt: bytes) -> r.TurnStarted:
    """Return the event with the place where its prompt leaves the tree's tokens."""
    node, end, depth = session.tree.longest_common_prefix(prompt)
    if (node, end) == (event.parent_node, event.parent_end):
        return event
    return replace(
        event,
        parent_node=node,
        parent_end=end,
        suffix_ids=prompt[depth * TOKEN_BYTES :],
        match_rule=RETHREADED,
    )


def _assigned(finalized: r.SessionFinalized, reward: Reward, what: str) -> r.RewardAssigned:
    return r.RewardAssigned(
        session_id=finalized.session_id,
        epoch=finalized.epoch,
        at_ms=finalized.at_ms,
        command_id=f"{_SOURCE}:{finalized.session_id}:{what}",
        reward=replace(reward, revision=_LATEST),
        final=True,
    )
