"""Choices among the groups that may be trained again, by name. Pure.

A choice depends on seed, step and the recorded uses alone, so a step that is executed again makes
the same one.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True, kw_only=True)
class ReuseRules:
    """The settings of reuse, `trainer.reuse`."""

    groups: int = 0
    """Most groups of earlier steps in a batch."""
    uses: int = 2
    """Steps that may train a group, the first one included."""
    max_staleness: int = 8
    """Largest staleness of their tokens, in optimizer steps."""
    choice: str = "random"
    seed: int = 0


@dataclass(frozen=True, slots=True)
class UsedSession:
    """A session of a group that was trained, and its record on `trajectories`."""

    session_id: str
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class UsedGroup:
    """A group that was trained, as a checkpoint keeps it."""

    group_id: str
    step: int
    """Step that trained it first."""
    uses: int
    """Steps that trained it."""
    sessions: tuple[UsedSession, ...]


def may_be_used(group: UsedGroup, step: int, rules: ReuseRules) -> bool:
    """Return whether `step` may train the group, as far as its uses tell.

    All its tokens are at least as stale as its first step is far away.
    """
    return group.uses < rules.uses and step - group.step <= rules.max_staleness


def in_order(groups: Sequence[UsedGroup], step: int, rules: ReuseRules) -> list[UsedGroup]:
    """Return the groups in the order in which `step` takes them."""
    # By name, since the order in memory is another one after a restart.
    return CHOICES[rules.choice](sorted(groups, key=_place), step, rules.seed)


def _place(group: UsedGroup) -> tuple[int, str]:
    return group.step, group.group_id


def _random(groups: Sequence[UsedGroup], step: int, seed: int) -> list[UsedGroup]:
    order = np.random.default_rng([seed, step]).permutation(len(groups))
    return [groups[place] for place in order.tolist()]


def _newest(groups: Sequence[UsedGroup], step: int, seed: int) -> list[UsedGroup]:
    return sorted(groups, key=lambda group: -group.step)


CHOICES: Mapping[str, Callable[[Sequence[UsedGroup], int, int], list[UsedGroup]]] = {
    "random": _random,
    "newest": _newest,
}
