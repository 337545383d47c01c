"""Sums over a step's trained tokens, micro-batch by micro-batch, and the metrics they give.

Sums and not means, so that ranks and micro-batches of unequal size add up. All in float64.
"""

import math
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from seamlessflow.trainer.backends.losses.tokens import LARGEST_LOG_RATIO, Losses, LossTokens, ratio

Reduce = Callable[[Tensor], Tensor]
_SUMS = (
    "tokens",
    "loss",
    "clipped",
    "entropy",
    "ratio",
    "ratio_squared",
    "policy_kl",
    "mismatch_tokens",
    "mismatch",
    "mismatch_kl",
    "value_loss",
    "reference_kl",
    "reference_tokens",
)

RATIO_WIDTH = 0.01
"""Bin width of log ratios, with a bin around 0; quantiles are exact to half a percent."""

_FARTHEST = 300
"""Bins on each side of 0, up to e^3; the last bin also counts further ratios."""


@dataclass(slots=True)
class TokenSums:
    """Sums over tokens, by name, their count by log ratio, and the largest mismatch."""

    sums: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    ratios: NDArray[np.int64] = field(
        default_factory=lambda: np.zeros(2 * _FARTHEST + 1, dtype=np.int64)
    )
    mismatch_max: float = 0.0

    def add(self, tokens: LossTokens, losses: Losses, weights_N: Tensor, newest_N: Tensor) -> None:
        """Add a micro-batch's trained tokens, with their weights in the step's loss.

        `newest_N`: the tokens that were sampled under the weights being trained.
        """
        log_ratios_N = tokens.logprobs_N - tokens.engine_N
        self.add_losses(losses, weights_N, log_ratios_N, tokens.entropies_N)
        if tokens.reference_N is not None:
            self.add_reference(tokens.reference_N - tokens.logprobs_N)
        self.add_mismatch(log_ratios_N[newest_N])

    def add_losses(
        self, losses: Losses, weights_N: Tensor, log_ratios_N: Tensor, entropies_N: Tensor
    ) -> None:
        """Add a micro-batch's trained tokens, with their weights in the step's loss."""
        ratios_N = ratio(log_ratios_N.detach())
        self._add("tokens", torch.ones_like(ratios_N))
        self._add("loss", losses.loss_N.detach().double() * weights_N)
        self._add("clipped", losses.clipped_N)
        self._add("entropy", entropies_N.detach())
        self._add("ratio", ratios_N)
        self._add("ratio_squared", ratios_N.double().square())
        self._add("policy_kl", divergence(log_ratios_N.detach()))
        self.ratios += ratio_counts(log_ratios_N)

    def add_mismatch(self, log_ratios_N: Tensor) -> None:
        """Add tokens measured under the same weights that sampled them."""
        if not len(log_ratios_N):
            return
        differences_N = log_ratios_N.detach()
        distances_N = differences_N.abs()
        self._add("mismatch_tokens", torch.ones_like(distances_N))
        self._add("mismatch", distances_N)
        self._add("mismatch_kl", divergence(differences_N))
        self.mismatch_max = max(self.mismatch_max, float(distances_N.max().item()))

    def add_reference(self, log_ratios_N: Tensor) -> None:
        """Add tokens' divergence from the reference, by their log ratios reference / policy."""
        self._add("reference_kl", divergence(log_ratios_N.detach()))
        self._add("reference_tokens", torch.ones_like(log_ratios_N))

    def add_value_loss(self, loss: float) -> None:
        """Add a rank's part in the critic's mean loss."""
        self.sums["value_loss"] += loss

    def merged(self, summed: Reduce, largest: Reduce) -> "TokenSums":
        """Return the sums over all ranks.

        `summed` and `largest` take this rank's vector and return it reduced over all ranks.
        """
        total = TokenSums()
        sums = summed(torch.tensor([self.sums[name] for name in _SUMS], dtype=torch.float64))
        most = largest(torch.tensor([self.mismatch_max], dtype=torch.float64))
        total.sums.update(zip(_SUMS, sums.tolist(), strict=True))
        # In float64 exact up to 2^53 tokens, and so the same however they are divided.
        total.ratios = summed(torch.from_numpy(self.ratios).double()).numpy().astype(np.int64)
        total.mismatch_max = most.item()
        return total

    def metrics(self) -> dict[str, float]:
        """Return the step's metrics; a mean over no tokens is left out."""
        sums = self.sums
        metrics = {"loss": sums["loss"], "mismatch_tokens": sums["mismatch_tokens"]}
        if tokens := sums["tokens"]:
            share = effective_share(sums["ratio"], sums["ratio_squared"], tokens)
            metrics |= {
                "clip_fraction": sums["clipped"] / tokens,
                "entropy": sums["entropy"] / tokens,
                "ratio_mean": sums["ratio"] / tokens,
                "ratio_p99": ratio_quantile(self.ratios, 0.99),
                "policy_kl": sums["policy_kl"] / tokens,
                "effective_sample_size": share,
            }
        if measured := sums["mismatch_tokens"]:
            metrics["mismatch_mean"] = sums["mismatch"] / measured
            metrics["mismatch_kl"] = sums["mismatch_kl"] / measured
            metrics["mismatch_max"] = self.mismatch_max
        if compared := sums["reference_tokens"]:
            metrics["reference_kl"] = sums["reference_kl"] / compared
        if loss := sums["value_loss"]:
            metrics["value_loss"] = loss
        return metrics

    def _add(self, name: str, values_N: Tensor) -> None:
        self.sums[name] += float(values_N.double().sum().item())


def divergence(log_ratios_N: Tensor) -> Tensor:
    """Return each token's estimate of KL(sampling policy || other policy), never negative.

    It is exp(x) - 1 - x at the log ratio x, in float64 (http://joschu.net/blog/kl-approx.html). A
    token far likelier under the other policy counts as e^20 times as likely; others have no bound.
    """
    exact_N = log_ratios_N.double().clamp(max=LARGEST_LOG_RATIO)
    return exact_N.expm1() - exact_N


def ratio_counts(log_ratios_N: Tensor) -> NDArray[np.int64]:
    """Return how many tokens are in each bin of log ratios, the least ones first."""
    bins_N = (log_ratios_N.detach().double() / RATIO_WIDTH).round()
    bins_N = bins_N.nan_to_num(nan=_FARTHEST).clamp(-_FARTHEST, _FARTHEST) + _FARTHEST
    return np.bincount(bins_N.long().cpu().numpy(), minlength=2 * _FARTHEST + 1)


def ratio_quantile(counts: NDArray[np.int64], part: float) -> float:
    """Return the middle of the bin in which this part of the tokens is reached.

    It is exact up to a bin's width, however ranks and micro-batches divide the tokens.
    """
    place = int(np.searchsorted(np.cumsum(counts), math.ceil(part * int(counts.sum()))))
    return math.exp((place - _FARTHEST) * RATIO_WIDTH)


def effective_share(total: float, squares: float, count: float) -> float:
    """Return the effective sample size as a share of `count` weights: (sum w)^2 / (n sum w^2)."""
    if not squares or not math.isfinite(squares):
        return 0.0
    return total * total / (count * squares)
