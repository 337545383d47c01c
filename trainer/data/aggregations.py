"""Aggregations: each trained token's weight in a step's loss, which is a weighted sum.

Registered by name (`AGGREGATIONS`, the setting `trainer.loss.aggregation`). Weights are computed
over the whole step before it is packed. So a loss depends neither on packing nor on how many ranks
there are. Pure; called by `steps/inputs.py`. `_C` counts chains, `_U` sequences. A sequence counts
if it has a trained token in the step, even in a group that a filter only counts.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from seamlessflow.infra.user_functions import ResultMalformed, chosen
from seamlessflow.schemas.arrays import Float64s, Int64s
from seamlessflow.trainer.credit import Chaining
from seamlessflow.trainer.data.chains import Chain
from seamlessflow.trainer.data.methods import method
from seamlessflow.trainer.data.units import membership
from seamlessflow.trainer.loss import LossSection

Aggregation = Callable[[Int64s, Int64s, LossSection], Float64s]
"""Takes each chain's sequence and trained-token count; returns the weight of one such token.

A sequence is a session, or a request if each request is a chain (`trainer.chains`).
"""


def token_mean(sequences_C: Int64s, trained_C: Int64s, _: LossSection) -> Float64s:
    """Return 1 / the step's trained tokens, arXiv 2503.14476 (DAPO)."""
    return np.full(len(sequences_C), 1 / max(1, int(trained_C.sum())))


def sequence_mean(sequences_C: Int64s, trained_C: Int64s, _: LossSection) -> Float64s:
    """Return 1 / (sequences x the sequence's trained tokens), arXiv 2402.03300 (GRPO)."""
    tokens_U = np.bincount(sequences_C, trained_C)
    return np.asarray(1 / (np.count_nonzero(tokens_U) * tokens_U[sequences_C]))


def constant(sequences_C: Int64s, trained_C: Int64s, settings: LossSection) -> Float64s:
    """Return 1 / (sequences x `constant_length`), arXiv 2503.20783 (Dr. GRPO)."""
    sequences = int(np.count_nonzero(np.bincount(sequences_C, trained_C)))
    return np.full(len(sequences_C), 1 / max(1, sequences * (settings.constant_length or 1)))


AGGREGATIONS: Mapping[str, Aggregation] = {
    "token_mean": token_mean,
    "sequence_mean": sequence_mean,
    "constant": constant,
}


def chain_weights(
    chains: Sequence[Chain],
    settings: LossSection,
    counted: Sequence[Chain] = (),
    chaining: Chaining = "merged",
) -> Float64s:
    """Return the weight of one trained token in each chain; every chain has some.

    `counted`: chains without a gradient. They are not computed, but count in the means. Raises
    `MethodFailed`.
    """
    every = [*chains, *counted]
    trained_C = np.fromiter((chain.trained() for chain in every), np.int64, len(every))
    requests_C = np.arange(len(every), dtype=np.int64)
    sequences_C = membership(every).sessions_C if chaining == "merged" else requests_C
    with method("aggregation", settings.aggregation):
        weigh = chosen(AGGREGATIONS, settings.aggregation, settings.functions)
        weights_C = weigh(sequences_C, trained_C, settings)
        return checked_weights(weights_C, len(every))[: len(chains)]


def checked_weights(weights: Float64s, chains: int) -> Float64s:
    """Return the weights if each chain has a finite one. Raises `ResultMalformed`."""
    weights_C = np.asarray(weights, np.float64)
    if weights_C.shape != (chains,):
        raise ResultMalformed(f"weights of shape {list(weights_C.shape)}", f"of {chains} chains")
    if not np.isfinite(weights_C).all():
        raise ResultMalformed("a weight that is not finite", "a finite one")
    return weights_C
