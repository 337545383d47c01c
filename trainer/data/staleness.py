"""Token staleness, in optimizer steps, and the removal of stale tokens from the loss.

A token's staleness is a difference: the steps that made the weights being trained, minus the steps
that made the version that sampled it. Version numbers cannot be subtracted instead: after a resume,
repeated steps get new numbers. Pure; called by the dataloader and `batch.py`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

import numpy as np

from seamlessflow.schemas.arrays import Bools, Int32s
from seamlessflow.trainer.data.chains import Chain, without

OnStale = Literal["mask", "correct", "drop", "wait"]
"""Treatment for tokens that are staler than allowed.

`mask`: they leave the loss. `correct`: they stay, and the loss corrects them by its importance
ratio. `drop`: their whole group is dropped. `wait`: like `mask`, but a batch first waits for
admitted groups that would be too stale one step later. It waits up to their deadlines.
"""


NO_LIMITS: Mapping[str, int | None] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class StepClock:
    """Counts of optimizer steps: those that made each version, and the weights being trained."""

    steps_of: Mapping[int, int]
    now: int
    recorded: bool = False
    """True if another run sampled the tokens. Then version n counts as n steps, and later weights
    than the present ones are as far away as earlier ones."""

    def age(self, version: int) -> int:
        """Return a version's staleness. One that is not recorded counts as its number."""
        return self.now - self.steps_of.get(version, version)

    def ages_T(self, versions_T: Int32s) -> Int32s:
        """Return every token's staleness."""
        distinct, inverse = np.unique(versions_T, return_inverse=True)
        ages = np.array([self.age(int(version)) for version in distinct], np.int32)
        return np.asarray(np.abs(ages[inverse]) if self.recorded else ages[inverse])


@dataclass(frozen=True, slots=True)
class GroupAdmission:
    """The version that was current at a group's admission, and the group's deadline."""

    version: int
    deadline_ms: int


@dataclass(frozen=True, slots=True)
class Screened:
    """Chains without their stale tokens, and how many tokens left the loss."""

    chains: tuple[Chain, ...]
    lost: int
    """Stale tokens."""

    longest_lost: int
    """Trained tokens in the longest chain with a stale token. Long sessions go stale first, so a
    batch's remaining tokens favour short ones; this figure shows it."""


def screen(
    chains: Iterable[Chain],
    clock: StepClock,
    limit: int,
    limits: Mapping[str, int | None] = NO_LIMITS,
) -> Screened:
    """Return the chains without the tokens that are more than `limit` steps stale.

    `limits`: other limits, by session; None: the session's tokens have no age.
    """
    kept = []
    lost = 0
    longest = 0
    for chain in chains:
        most = limits.get(chain.session_id, limit)
        count = 0
        if most is not None:
            stale_T = stale(chain, clock, most)
            count = int(np.count_nonzero(stale_T))
        left = without(chain, stale_T) if count else chain
        lost = lost + count
        longest = max(longest, chain.trained() if count else 0)
        if left is not None:
            kept.append(left)
    return Screened(tuple(kept), lost, longest)


def stale(chain: Chain, clock: StepClock, limit: int) -> Bools:
    """Return a mask over a chain's trained tokens that are more than `limit` steps stale."""
    tokens = chain.tokens
    return tokens.trained_T & (clock.ages_T(tokens.versions_T) > limit)


def awaited(
    under_way: Mapping[str, GroupAdmission], clock: StepClock, limit: int, now_ms: int
) -> list[str]:
    """Return admitted groups that the next step would find too stale, up to their deadlines.

    A group is as stale as the version that was current when it was admitted.
    """
    return [
        group_id
        for group_id, admission in under_way.items()
        if clock.age(admission.version) >= limit and now_ms < admission.deadline_ms
    ]
