"""How far behind the trained weights a token was sampled, and what is done about it.

Staleness is counted in optimizer steps: the steps behind the weights that are trained minus the
steps behind the version that sampled the token. Version numbers cannot be subtracted: a resume goes
on with new numbers for steps that were done before. Pure; called by the dataloader.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from trainer.data.chains import Bools, Chain, Int32s, without

OnStale = Literal["mask", "correct", "drop", "wait"]
"""What becomes of tokens that are more than the allowed steps behind.

`mask`: they leave the loss. `correct`: they stay, and the loss corrects for it. `drop`: their whole
group is given up. `wait`: like `mask`, but before that a batch waits for groups under way that
would be too old one step later, until their deadline.
"""


@dataclass(frozen=True, slots=True)
class StepClock:
    """Optimizer steps behind each version, and the steps behind the weights being trained."""

    steps_of: Mapping[int, int]
    now: int

    def age(self, version: int) -> int:
        """Steps between a version and the weights; an unrecorded version counts as its number."""
        return self.now - self.steps_of.get(version, version)

    def ages_T(self, versions_T: Int32s) -> Int32s:
        """`age` of every token."""
        distinct, inverse = np.unique(versions_T, return_inverse=True)
        ages = np.array([self.age(int(version)) for version in distinct], np.int32)
        return np.asarray(ages[inverse])


@dataclass(frozen=True, slots=True)
class GroupAdmission:
    """A group that is under way: the version that was current when it began, and its deadline."""

    version: int
    deadline_ms: int


@dataclass(frozen=True, slots=True)
class Screened:
    """Chains after the stale tokens have left, and what was lost."""

    chains: tuple[Chain, ...]
    lost: int
    """Tokens that left."""

    longest_lost: int
    """Trained tokens of the longest chain that lost any; losses favour short sessions."""


def screen(chains: Iterable[Chain], clock: StepClock, limit: int) -> Screened:
    """Takes tokens more than `limit` steps behind out of the loss."""
    kept, lost, longest = [], 0, 0
    for chain in chains:
        stale_T = stale(chain, clock, limit)
        count = int(np.count_nonzero(stale_T))
        left = without(chain, stale_T) if count else chain
        lost, longest = lost + count, max(longest, chain.trained() if count else 0)
        if left is not None:
            kept.append(left)
    return Screened(tuple(kept), lost, longest)


def stale(chain: Chain, clock: StepClock, limit: int) -> Bools:
    """Which trained tokens of a chain are more than `limit` steps behind."""
    tokens = chain.tokens
    return tokens.trained_T & (clock.ages_T(tokens.versions_T) > limit)


def awaited(
    under_way: Mapping[str, GroupAdmission], clock: StepClock, limit: int, now_ms: int
) -> list[str]:
    """Groups that would be too old for the step after this one and may still come."""
    return [
        group_id
        for group_id, admission in under_way.items()
        if clock.age(admission.version) >= limit and now_ms < admission.deadline_ms
    ]
