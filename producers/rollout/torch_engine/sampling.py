"""Sampling: one token for every row in a batch, without a Python loop over rows.

A row's token depends on its own logits, parameters, seed and completion offset, never on other
rows. A counter-based generator gives one uniform number a token. The inverse cumulative
distribution, over the vocabulary in id order, turns it into a token.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)


@dataclass(frozen=True, slots=True)
class SamplingBatch:
    """Parameters for B rows, on the host. `offset_B`: a row's token's place in its completion."""

    temperature_B: npt.NDArray[np.float32]
    top_p_B: npt.NDArray[np.float64]
    top_k_B: npt.NDArray[np.int64]
    seed_B: npt.NDArray[np.uint64]
    offset_B: npt.NDArray[np.int64]


def uniforms(
    seed_B: npt.NDArray[np.uint64], offset_B: npt.NDArray[np.int64]
) -> npt.NDArray[np.float64]:
    """Return number `offset` in the stream from `seed`, in [0, 1 - 2**-52].

    This is SplitMix64 (Steele, Lea, Flood 2014), read at a position. A mixed seed starts it, so
    neighbouring seeds do not share a stream.
    """
    state_B = _mix(seed_B) + (offset_B.astype(np.uint64) + np.uint64(1)) * _GOLDEN
    return (_mix(state_B) >> np.uint64(12)).astype(np.float64) * 2.0**-52


def _mix(state_B: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    state_B = (state_B ^ (state_B >> np.uint64(30))) * _MIX_1
    state_B = (state_B ^ (state_B >> np.uint64(27))) * _MIX_2
    return state_B ^ (state_B >> np.uint64(31))


def sample(logits_BV: Tensor, batch: SamplingBatch) -> tuple[Tensor, Tensor]:
    """Return token ids int64[B] and their log-probabilities float32[B] at the rows' temperatures.

    The log-probabilities are over the whole vocabulary, whatever top-k and top-p leave out.
    """
    logprobs_BV = distributions(logits_BV, batch.temperature_B)
    weights_BV = _filtered(logprobs_BV.exp(), batch)
    tokens_B = _sampled(weights_BV, uniforms(batch.seed_B, batch.offset_B))
    greedy_B = batch.temperature_B == 0
    if greedy_B.any():
        chosen_B = torch.from_numpy(greedy_B).to(logits_BV.device)
        tokens_B = torch.where(chosen_B, logprobs_BV.argmax(dim=-1), tokens_B)
    return tokens_B, logprobs_BV.gather(1, tokens_B[:, None])[:, 0]


def most_likely(
    logits_RV: Tensor, temperature_R: npt.NDArray[np.float32], count: int
) -> tuple[Tensor, Tensor]:
    """Return the most likely tokens int64[R, count], best first, and their log-probabilities."""
    top = distributions(logits_RV, temperature_R).topk(count, dim=-1)
    return top.indices, top.values


def distributions(logits_BV: Tensor, temperature_B: npt.NDArray[np.float32]) -> Tensor:
    """Return the log-probabilities float32[B, V] at each row's temperature; greedy rows at 1."""
    logprobs_BV = torch.log_softmax(logits_BV, dim=-1, dtype=torch.float32)
    rows = np.flatnonzero((temperature_B != 0) & (temperature_B != 1))
    if rows.size == 0:
        return logprobs_BV
    # Only these rows: a row's numbers must not depend on what stands beside it.
    rows_R = torch.from_numpy(rows).to(logprobs_BV.device)
    scale_R1 = torch.from_numpy(temperature_B[rows]).to(logprobs_BV.device)[:, None]
    chosen_RV = logprobs_BV[rows_R]
    best_R1 = chosen_RV.amax(dim=-1, keepdim=True)  # so that a tiny divisor gives no infinity
    tempered_RV = torch.log_softmax((chosen_RV - best_R1) / scale_R1, dim=-1)
    return logprobs_BV.index_copy(0, rows_R, tempered_RV)


def _sampled(weights_BV: Tensor, uniform_B: npt.NDArray[np.float64]) -> Tensor:
    """Return the first token at which the cumulative weight passes a uniform share of the total."""
    cumulative_BV = _cumulative(weights_BV)
    share_B1 = torch.from_numpy(uniform_B).to(weights_BV.device)[:, None] * cumulative_BV[:, -1:]
    tokens_B = torch.searchsorted(cumulative_BV, share_B1, right=True)[:, 0]
    return tokens_B.clamp_(max=weights_BV.shape[1] - 1)  # NaN weights would give V


def _filtered(weights_BV: Tensor, batch: SamplingBatch) -> Tensor:
    """Return the weights with zeros for tokens that top-k and then top-p leave out."""
    rows = np.flatnonzero((batch.top_k_B > 0) | (batch.top_p_B < 1))
    if rows.size == 0:
        return weights_BV
    device = weights_BV.device
    rows_R = torch.from_numpy(rows).to(device)
    vocabulary = weights_BV.shape[1]
    top_k_R = np.where(batch.top_k_B[rows] > 0, batch.top_k_B[rows], vocabulary)
    limit_R1 = torch.from_numpy(top_k_R).to(device)[:, None]
    top_p_R1 = torch.from_numpy(batch.top_p_B[rows]).to(device)[:, None]
    ordered_RV, ids_RV = weights_BV[rows_R].sort(dim=-1, descending=True, stable=True)
    ordered_RV = ordered_RV * (torch.arange(vocabulary, device=device) < limit_R1)
    ordered_RV = ordered_RV * _nucleus(ordered_RV, top_p_R1)
    kept_RV = torch.zeros_like(ordered_RV).scatter_(1, ids_RV, ordered_RV)
    return weights_BV.index_copy(0, rows_R, kept_RV)


def _nucleus(ordered_RV: Tensor, top_p_R1: Tensor) -> Tensor:
    """Return True for the shortest leading run, at least one token, with `top_p` of the weight."""
    cumulative_RV = _cumulative(ordered_RV)
    return (cumulative_RV - ordered_RV) < top_p_R1 * cumulative_RV[:, -1:]


def _cumulative(weights_BV: Tensor) -> Tensor:
    """Return the cumulative sums float64[B, V]."""
    # In place: a second buffer of this size costs six times the sums, in pages of fresh memory.
    return weights_BV.double().cumsum_(dim=-1)
