"""Sums over the trained tokens of a step, gathered micro-batch by micro-batch, and their metrics.

Sums and not means, so that ranks and micro-batches of unequal size add up. All are of float64.
"""

import math
from collections import defaultdict
from dataclasses import dataclass, field

import torch
from torch import Tensor

from trainer.losses import Losses, ratio


@dataclass(slots=True)
class TokenSums:
    """What is summed, and what the largest of is kept."""

    sums: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    largest: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))

    def add_losses(self, losses: Losses, log_ratios_N: Tensor, entropies_N: Tensor) -> None:
        """Takes in the trained tokens of a micro-batch."""
        ratios_N = ratio(log_ratios_N.detach())
        self._add("tokens", torch.ones_like(ratios_N))
        self._add("loss", losses.loss_N.detach())
        self._add("clipped", losses.clipped_N)
        self._add("entropy", entropies_N)
        self._add("ratio", ratios_N)
        self._add("ratio_squared", ratios_N.double().square())
        self._add("policy_kl", ratios_N - 1 - log_ratios_N.detach())

    def add_mismatch(self, log_ratios_N: Tensor) -> None:
        """Takes in tokens measured under the very weights that sampled them."""
        if not len(log_ratios_N):
            return
        differences_N = log_ratios_N.detach()
        distances_N = differences_N.abs()
        self._add("mismatch_tokens", torch.ones_like(distances_N))
        self._add("mismatch", distances_N)
        self._add("mismatch_kl", ratio(differences_N) - 1 - differences_N)
        self.largest["mismatch_max"] = max(
            self.largest["mismatch_max"], float(distances_N.max().item())
        )

    def metrics(self) -> dict[str, float]:
        """Metrics of the step; those of the mismatch only where there was something to measure."""
        sums, tokens = self.sums, max(self.sums["tokens"], 1.0)
        found = {
            "loss": sums["loss"] / tokens,
            "clip_fraction": sums["clipped"] / tokens,
            "entropy": sums["entropy"] / tokens,
            "ratio_mean": sums["ratio"] / tokens,
            "policy_kl": sums["policy_kl"] / tokens,
            "effective_sample_size": effective_share(sums["ratio"], sums["ratio_squared"], tokens),
            "mismatch_tokens": sums["mismatch_tokens"],
        }
        if measured := sums["mismatch_tokens"]:
            found["mismatch_mean"] = sums["mismatch"] / measured
            found["mismatch_kl"] = sums["mismatch_kl"] / measured
            found["mismatch_max"] = self.largest["mismatch_max"]
        return found

    def _add(self, name: str, values_N: Tensor) -> None:
        self.sums[name] += float(values_N.double().sum().item())


def effective_share(total: float, squares: float, count: float) -> float:
    """Effective sample size of `count` weights as a share of it: (sum w)^2 / (n sum w^2)."""
    if not squares or not math.isfinite(squares):
        return 0.0
    return total * total / (count * squares)
