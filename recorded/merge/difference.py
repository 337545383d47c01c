"""Differences between two merges of one session, and their sums. Pure."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from seamlessflow.schemas.records import Trajectory, TrajectoryNode
from seamlessflow.schemas.tokens import POLICY


@dataclass(slots=True)
class Difference:
    """Differences between merges by other rules and by the recorded ones, over all sessions."""

    sessions: int = 0
    """Sessions that differ in any way."""
    trained_more: int = 0
    """Sampled tokens that are trained, and were masked."""
    trained_less: int = 0
    """Sampled tokens that are masked, and were trained."""
    masked: Counter[str] = field(default_factory=Counter)
    """Change in how many tokens are masked, by reason."""
    turns_moved: int = 0
    """Turns that continue another place in the tree."""
    prompt_tokens: int = 0
    """Change in how many stored tokens were not sampled."""
    rewards: int = 0
    """Rewards that are new, gone, or have another value."""
    statuses: Counter[str] = field(default_factory=Counter)
    """Status changes, for example `unrewarded to complete`."""
    examples: list[str] = field(default_factory=list)
    """Ids of the first sessions that differ."""

    def apply(self, before: Trajectory, after: Trajectory, most_examples: int = 5) -> None:
        """Add a session's two merges."""
        if _essence(before) == _essence(after):
            return
        self.sessions += 1
        if len(self.examples) < most_examples:
            self.examples.append(before.session_id)
        pairs = list(zip(before.nodes, after.nodes, strict=False))
        for old, new in pairs:
            self._add_node(old, _mask(before, old), new, _mask(after, new))
        self.masked.update(after.masked_tokens)
        self.masked.subtract(before.masked_tokens)
        self.rewards += _changed(_values(before), _values(after))
        if before.status != after.status:
            self.statuses[f"{before.status} to {after.status}"] += 1

    def add(self, other: "Difference", most_examples: int = 5) -> None:
        """Add the sums over other sessions."""
        for name in ("sessions", "trained_more", "trained_less", "turns_moved"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.prompt_tokens += other.prompt_tokens
        self.rewards += other.rewards
        self.masked.update(other.masked)
        self.statuses.update(other.statuses)
        self.examples = (self.examples + other.examples)[:most_examples]

    def _add_node(
        self, old: TrajectoryNode, old_mask: bytes, new: TrajectoryNode, new_mask: bytes
    ) -> None:
        if old.origin == POLICY:
            before_T, after_T = (np.frombuffer(mask, np.bool_) for mask in (old_mask, new_mask))
            self.trained_more += int((after_T & ~before_T).sum())
            self.trained_less += int((before_T & ~after_T).sum())
        else:
            self.prompt_tokens += new.length - old.length
            self.turns_moved += (old.parent, old.parent_end) != (new.parent, new.parent_end)


def _essence(made: Trajectory) -> object:
    """Return what rules can change, without the rules' own version."""
    return made.tokens, made.loss_mask, made.nodes, made.rewards, made.status, made.purpose


def _mask(made: Trajectory, node: TrajectoryNode) -> bytes:
    return made.loss_mask[node.start : node.start + node.length]


def _values(made: Trajectory) -> Mapping[object, float]:
    return {(reward.name, reward.scope, reward.turn_id): reward.value for reward in made.rewards}


def _changed(old: Mapping[object, float], new: Mapping[object, float]) -> int:
    return sum(old.get(key) != new.get(key) for key in old.keys() | new.keys())
