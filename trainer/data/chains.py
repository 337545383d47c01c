"""Chains: the token sequences in a trajectory's tree, from a root to where a branch ends.

Each trainable token is trained in exactly one chain, the first in node order, however many branches
share it. With `per_request` each completion has a chain that trains only its tokens. A chain ends
with its last trained token, because no loss depends on tokens after it. Columns have a number for
each trained token; devices compute most of them before training. Pure; called by `sessions.py`.
`_T` counts a chain's tokens, `_N` its trained ones.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from itertools import pairwise
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from seamlessflow.infra.errors import SeamlessFlowError
from seamlessflow.schemas.arrays import Bools, Float32s, Int32s
from seamlessflow.schemas.records import Trajectory, TrajectoryNode
from seamlessflow.schemas.tokens import FOREIGN, POLICY, of_exact_version
from seamlessflow.trainer.credit import Chaining

_Element = TypeVar("_Element", bound=np.generic)
SAMPLED = (POLICY, FOREIGN)
"""Node origins that may have trained tokens; foreign tokens are masked unless asked for."""
NOWHERE = -1
"""Turn, offset and version for a token that no policy sampled; also an unknown version."""
ELSEWHERE = -2
"""Version for a token from another log; that log's versions mean nothing in this run."""


class Column(StrEnum):
    """A column's name; each says which model or pass computes the column."""

    REFERENCE = "reference"
    """Log-prob under `trainer.reference`, at the temperature that the token was sampled at."""
    TEACHER = "teacher"
    """Log-prob under `trainer.teacher`, at the same temperature."""
    VALUE = "value"
    """The critic's value for the place before the token."""
    VIABILITY = "viability"
    """The critic's logit for success, at the place before the token."""
    END_VIABILITY = "end_viability"
    """The same logit, behind the token."""
    EFFICIENCY = "efficiency"
    """The critic's estimate of minus the turns to success, at the place before the token."""
    END_EFFICIENCY = "end_efficiency"
    """The same estimate, behind the token."""
    ENTROPY = "entropy"
    """The policy's entropy at the token, in nats, under the weights before the step. The
    temperature is the token's sampling temperature."""
    TOP_SHARE = "top_share"
    """Summed probability of the `LIKELIEST` likeliest tokens at the place that predicts the token,
    under the same weights and at the same temperature."""
    PROXIMAL = "proximal"
    """Log-prob under the weights before the step, at the token's sampling temperature. For steps
    with several updates, and for advantages that compare the policy with another."""
    OPPONENT_1 = "opponent_1"
    """Log-prob under the newest opponent (`trainer.pairs.opponents`), at the same temperature."""
    OPPONENT_2 = "opponent_2"
    OPPONENT_3 = "opponent_3"
    OPPONENT_4 = "opponent_4"
    PAIR_LOSS = "pair_loss"
    """The token's part in the loss of its session's pairs; the trainer computes it."""
    TARGET = "target"
    """Return that the critic learns for the place before the token; the trainer computes it from
    the values."""
    TARGET_WEIGHT = "target_weight"
    """That place's weight in the critic's loss; a step's weights sum to 1."""
    VIABILITY_TARGET = "viability_target"
    """1 for success and 0 for failure; like all targets, the trainer computes it."""
    VIABILITY_WEIGHT = "viability_weight"
    END_VIABILITY_TARGET = "end_viability_target"
    END_VIABILITY_WEIGHT = "end_viability_weight"
    EFFICIENCY_TARGET = "efficiency_target"
    """Minus the turns to success, computed from the next place's value."""
    EFFICIENCY_WEIGHT = "efficiency_weight"
    END_EFFICIENCY_TARGET = "end_efficiency_target"
    END_EFFICIENCY_WEIGHT = "end_efficiency_weight"


OF_POLICY = (Column.PROXIMAL, Column.ENTROPY, Column.TOP_SHARE)
"""Columns that one pass of the policy itself computes, in the order of its scores."""
OPPONENTS = (Column.OPPONENT_1, Column.OPPONENT_2, Column.OPPONENT_3, Column.OPPONENT_4)
"""Columns from earlier policies, the newest first."""
LIKELIEST = 5
"""Count of tokens whose probability `Column.TOP_SHARE` sums."""
Columns = Mapping[Column, NDArray[np.float32]]
"""Columns over the trained tokens (N) in a chain or a micro-batch."""
AnnotatedColumns = Mapping[Column, Sequence[NDArray[np.float32]]]
"""Columns as an array for each micro-batch."""


class TrajectoryMalformed(SeamlessFlowError):
    """A trajectory that contradicts itself, so it cannot be trained."""

    def __init__(self, session: str, reason: str) -> None:
        self.session = session
        self.reason = reason
        super().__init__(f"trajectory of session {session}: {reason}")


@dataclass(frozen=True, slots=True)
class Tokens:
    """Equally long arrays with one entry per token."""

    ids_T: Int32s
    trained_T: Bools
    logprobs_T: Float32s
    """Log-prob that the engine reported when it sampled the token. NaN if none is known; the token
    then gets its log-prob under the weights before the step."""

    temperatures_T: Float32s
    """Temperature for that log-prob."""

    versions_T: Int32s
    """Policy version that sampled the token."""

    turns_T: Int32s
    """The token's turn, as an index into the chain's `turns`."""

    offsets_T: Int32s
    """The token's index in its turn's completion."""

    advantages_T: Float32s
    """A trained token's advantage; 0 until its group is in a batch."""

    def select(self, pieces: Sequence[tuple[int, int]]) -> "Tokens":
        """Return the tokens of these (start, end) runs, joined."""
        return Tokens(*(_joined(getattr(self, column.name), pieces) for column in fields(self)))


@dataclass(frozen=True, slots=True)
class Chain:
    """One sequence to train on, with each token's origin."""

    session_id: str
    turns: tuple[str, ...]
    tokens: Tokens
    columns: Columns = field(default_factory=dict)
    """Columns for its trained tokens, once its batch is annotated."""

    def __len__(self) -> int:
        return len(self.tokens.ids_T)

    def trained(self) -> int:
        """Return how many tokens enter the loss."""
        return int(np.count_nonzero(self.tokens.trained_T))


@dataclass(frozen=True, slots=True)
class Chains:
    """All chains in a trajectory, and how many sampled tokens are not trained, by reason."""

    chains: tuple[Chain, ...]
    masked: Mapping[str, int]


def chains(
    trajectory: Trajectory,
    policy: str,
    policies: Collection[str] = (),
    chaining: Chaining = "merged",
) -> Chains:
    """Return the chains that train `policy`. Raise `TrajectoryMalformed`.

    Tokens that the trajectory masks stay masked. Tokens from another policy or an inexact version
    are also masked. So is a first token, because no token predicts it. Tokens from the other
    `policies` have their own trainers and are not counted.
    """
    turns: dict[str, int] = {}
    flat = _flat(trajectory, turns)
    masked = Counter(_own_masked(trajectory, policy) if policies else trajectory.masked_tokens)
    _mask(flat, "other_policy", _of_other_policies(trajectory, {policy, *policies}), masked)
    _mask(flat, "", _of_other_policies(trajectory, {policy}), Counter())
    _mask(flat, "inexact_version", flat.versions_T == NOWHERE, masked)
    branches = []
    paths = _branches if chaining == "merged" else _completions
    for pieces in paths(trajectory.nodes):
        trained_T = _joined(flat.trained_T, pieces)
        if trained_T[:1].any():
            masked["no_prefix"] += 1
            trained_T[0] = False
        # The next branches share these tokens and must not train them again.
        for start, end in pieces:
            flat.trained_T[start:end] = False
        if (trained := trained_T.nonzero()[0]).size:
            length = int(trained[-1]) + 1
            tokens = replace(flat.select(_shortened(pieces, length)), trained_T=trained_T[:length])
            branches.append(Chain(trajectory.session_id, tuple(turns), tokens))
    return Chains(tuple(branches), {reason: count for reason, count in masked.items() if count})


def intervened_turns(trajectory: Trajectory) -> int:
    """Return how many turns precede the last intervention; they are the first ones in chains.

    An intervention stands in a prompt, before the tokens sampled for it. So the prompt's own turn
    does not count.
    """
    turns: dict[str, int] = {}
    before = 0
    for node in trajectory.nodes:
        if node.intervened:
            before = len(turns)
        if node.origin in SAMPLED:
            turns.setdefault(node.turn_id, len(turns))
    return before


def forks(of_session: Sequence[Chain], chaining: Chaining = "merged") -> bool:
    """Return True if a session has several chains that do not continue each other."""
    if chaining == "merged":
        return len(of_session) > 1
    return not all(_continues(later, earlier) for earlier, later in pairwise(of_session))


def credited(chain: Chain, advantages_N: ArrayLike) -> Chain:
    """Return the chain with these advantages for its trained tokens, or one advantage for all."""
    advantages_T = np.zeros(len(chain), np.float32)
    advantages_T[chain.tokens.trained_T] = advantages_N
    return replace(chain, tokens=replace(chain.tokens, advantages_T=advantages_T))


def without(chain: Chain, masked_T: Bools) -> Chain | None:
    """Return the chain with these tokens out of the loss; None if no trained token is left."""
    trained_T = chain.tokens.trained_T & ~masked_T
    left = np.flatnonzero(trained_T)
    if not left.size:
        return None
    tokens = replace(chain.tokens, trained_T=trained_T)
    return replace(chain, tokens=tokens.select([(0, int(left[-1]) + 1)]))


def _flat(trajectory: Trajectory, turns: dict[str, int]) -> Tokens:
    """Return all tokens in node order; fill `turns` with each turn's index."""
    ids_T = np.frombuffer(trajectory.tokens, "<i4")
    size = len(ids_T)
    mask = np.frombuffer(trajectory.loss_mask, np.uint8)
    logprobs_T = np.frombuffer(trajectory.logprobs, "<f4")
    if not len(mask) == len(logprobs_T) == size:
        lengths = f"{size} tokens, {len(mask)} mask bytes, {len(logprobs_T)} log-probs"
        raise TrajectoryMalformed(trajectory.session_id, lengths)
    turns_T, offsets_T = np.full((2, size), NOWHERE, np.int32)
    temperatures_T = np.ones(size, np.float32)
    sampled: Counter[str] = Counter()
    for node in trajectory.nodes:
        _check(trajectory, node, size)
        # Offsets count on when a completion continues in further nodes.
        if node.origin in SAMPLED:
            end = node.start + node.length
            temperatures_T[node.start : end] = node.logprob_temperature
            turns_T[node.start : end] = turns.setdefault(node.turn_id, len(turns))
            offsets_T[node.start : end] = np.arange(node.length) + sampled[node.turn_id]
            sampled[node.turn_id] += node.length
    trained_T = (mask != 0) & (turns_T >= 0)
    versions_T = _versions(trajectory, turns_T)
    advantages_T = np.zeros(size, np.float32)
    return Tokens(
        ids_T,
        trained_T,
        logprobs_T,
        temperatures_T,
        versions_T,
        turns_T,
        offsets_T,
        advantages_T,
    )


def _check(trajectory: Trajectory, node: TrajectoryNode, size: int) -> None:
    nodes = trajectory.nodes
    if node.start < 0 or node.length < 0 or node.start + node.length > size:
        raise TrajectoryMalformed(trajectory.session_id, f"node {node.node_id} leaves its arrays")
    if nodes[min(node.node_id, len(nodes) - 1)] is not node:
        raise TrajectoryMalformed(trajectory.session_id, f"node {node.node_id} is out of order")
    if node.parent >= node.node_id or (
        node.parent >= 0 and not 0 <= node.parent_end <= nodes[node.parent].length
    ):
        raise TrajectoryMalformed(trajectory.session_id, f"node {node.node_id} has no such parent")


def _branches(nodes: Sequence[TrajectoryNode]) -> list[list[tuple[int, int]]]:
    """Return the path to every node that no child continues at its end, as runs of the arrays."""
    continued = {
        node.parent
        for node in nodes
        if node.parent >= 0 and node.parent_end == nodes[node.parent].length
    }
    return [_path(nodes, node) for node in nodes if node.node_id not in continued]


def _completions(nodes: Sequence[TrajectoryNode]) -> list[list[tuple[int, int]]]:
    """Return the path to every sampled node.

    Parents come first, so an earlier chain already trains the sampled tokens before a completion.
    """
    return [_path(nodes, node) for node in nodes if node.origin in SAMPLED]


def _continues(later: Chain, earlier: Chain) -> bool:
    ids_T = later.tokens.ids_T[: len(earlier)]
    return np.array_equal(ids_T, earlier.tokens.ids_T)


def _path(nodes: Sequence[TrajectoryNode], leaf: TrajectoryNode) -> list[tuple[int, int]]:
    pieces = [(leaf.start, leaf.start + leaf.length)]
    node = leaf
    while node.parent >= 0:
        end = node.parent_end
        node = nodes[node.parent]
        # Runs that touch are joined, so that most chains are a single slice of the arrays.
        if node.start + end == pieces[-1][0]:
            pieces[-1] = (node.start, pieces[-1][1])
        else:
            pieces.append((node.start, node.start + end))
    return pieces[::-1]


def _versions(trajectory: Trajectory, turns_T: Int32s) -> Int32s:
    """Return the version of every sampled token, `NOWHERE` where it is not known exactly."""
    spans = sorted(trajectory.spans, key=lambda span: span.start)
    ends = [span.start for span in spans[1:]] + [len(turns_T)]
    versions_T = np.full(len(turns_T), NOWHERE, np.int32)
    for span, end in zip(spans, ends, strict=False):
        if of_exact_version(span):
            versions_T[span.start : end] = span.version_min
    versions_T[turns_T == NOWHERE] = NOWHERE
    return versions_T


def _own_masked(trajectory: Trajectory, policy: str) -> Counter[str]:
    """Return how many of the policy's tokens the trajectory masks, by reason."""
    counts = Counter[str]()
    mask = np.frombuffer(trajectory.loss_mask, np.uint8)
    for node in trajectory.nodes:
        if node.masked_reason and (node.policy or trajectory.policy) == policy:
            kept = np.count_nonzero(mask[node.start : node.start + node.length])
            counts[node.masked_reason] += node.length - int(kept)
    return counts


def _of_other_policies(trajectory: Trajectory, policies: set[str]) -> Bools:
    foreign_T = np.zeros(len(trajectory.loss_mask), np.bool_)
    for node in trajectory.nodes:
        if (node.policy or trajectory.policy) not in policies:
            foreign_T[node.start : node.start + node.length] = True
    return foreign_T


def _mask(tokens: Tokens, reason: str, masked_T: Bools, counts: Counter[str]) -> None:
    if count := int(np.count_nonzero(tokens.trained_T & masked_T)):
        counts[reason] += count
        tokens.trained_T[masked_T] = False


def _shortened(pieces: Sequence[tuple[int, int]], length: int) -> list[tuple[int, int]]:
    """Return the runs cut to their first `length` tokens."""
    runs = []
    for start, end in pieces:
        runs.append((start, min(end, start + length)))
        length -= end - start
        if length <= 0:
            break
    return runs


def _joined(column: NDArray[_Element], pieces: Sequence[tuple[int, int]]) -> NDArray[_Element]:
    if len(pieces) == 1:
        start, end = pieces[0]
        return column[start:end].copy()
    return np.concatenate([column[start:end] for start, end in pieces])
