"""Chains of everything that was sampled, and the part of them that is trained. Pure."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from seamlessflow.schemas.records import Trajectory
from seamlessflow.trainer.data.chains import NOWHERE, Bools, Chain, chains

_INEXACT = -2
"""Version that stands for one that is not known exactly, so that its tokens are in chains too."""


@dataclass(frozen=True, slots=True)
class SampledChain:
    """A chain in which each token of `sampled_T` stands in no other chain of its session."""

    policy: str
    chain: Chain
    sampled_T: Bools
    trained_T: Bools
    """Those of them that the trajectory's loss mask has."""
    versions_T: NDArray[np.int32]
    """Policy version of each token, -1 if no policy sampled it or it is not known exactly."""


def sampled_chains(made: Trajectory) -> Iterator[SampledChain]:
    """Yield the chains that have all sampled tokens once, by policy.

    Only a sampled token that begins a sequence is in none, since no token predicts it. Raises
    `TrajectoryMalformed`.
    """
    whole = _all_sampled(made)
    trained = _trained_by_turn(made)
    for policy in dict.fromkeys(node.policy or made.policy for node in made.nodes):
        for chain in chains(whole, policy).chains:
            sampled_T = chain.tokens.trained_T
            versions_T = chain.tokens.versions_T.copy()
            versions_T[versions_T == _INEXACT] = NOWHERE
            yield SampledChain(policy, chain, sampled_T, _trained(chain, trained), versions_T)


def _all_sampled(made: Trajectory) -> Trajectory:
    """Return the trajectory as if rules masked nothing."""
    mask = b"".join(bytes([node.origin == "policy"]) * node.length for node in made.nodes)
    spans = tuple(
        span
        if span.version_min == span.version_max
        else replace(span, version_min=_INEXACT, version_max=_INEXACT)
        for span in made.spans
    )
    return replace(made, loss_mask=mask, spans=spans)


def _trained_by_turn(made: Trajectory) -> dict[str, Bools]:
    """Return for each turn which tokens of its completion are trained."""
    mask = np.frombuffer(made.loss_mask, np.bool_)
    parts: defaultdict[str, list[Bools]] = defaultdict(list)
    for node in made.nodes:
        if node.origin == "policy":
            parts[node.turn_id].append(mask[node.start : node.start + node.length])
    return {turn: np.concatenate(masks) for turn, masks in parts.items()}


def _trained(chain: Chain, trained: dict[str, Bools]) -> Bools:
    flags = [trained[turn] for turn in chain.turns]
    starts = np.cumsum([0, *map(len, flags)])
    found_T = chain.tokens.trained_T.copy()
    turns_T = chain.tokens.turns_T[found_T]
    found_T[found_T] = np.concatenate(flags)[starts[turns_T] + chain.tokens.offsets_T[found_T]]
    return found_T
