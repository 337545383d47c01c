"""A loss's input and output, token by token, and ratios between the tokens' probabilities.

A ratio belongs to a token, or to all trained tokens in a turn or a session. `_N` counts a
micro-batch's trained tokens.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from seamlessflow.infra.user_functions import ResultMalformed
from seamlessflow.trainer.loss import Divergence

_LEAST = 1e-12
"""Least probability for all other tokens together, against a division by zero."""
LARGEST_LOG_RATIO = 20.0
"""Bound for log ratios: e^20 is far above any `cap`, and the exponential of much more overflows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LossTokens:
    """A micro-batch's trained tokens, with whole turns and sessions if the loss needs them."""

    logprobs_N: Tensor
    """Log-probs under the weights that are trained, with gradient."""

    engine_N: Tensor
    """Log-probs under the policy that sampled, as the engine reported them."""

    old_N: Tensor
    """Log-probs under the old policy, the denominator in a surrogate's ratio; without gradient."""

    advantages_N: Tensor
    entropies_N: Tensor
    """The policy's entropy at each token, in nats; with gradient if the loss rewards it."""

    reference_N: Tensor | None
    """Log-probs under the reference; None if the loss has no divergence from it."""

    turns_N: NDArray[np.int32]
    sessions_N: NDArray[np.int32]
    pair_losses_N: Tensor | None = None
    """Each token's part in the pair losses; None if the loss compares no pairs."""

    @property
    def log_ratios_N(self) -> Tensor:
        """The log ratio weights / old policy."""
        return self.logprobs_N - self.old_N

    def units_N(self, level: str) -> NDArray[np.int32]:
        """Return each token's turn or session, by number."""
        return self.turns_N if level == "turn" else self.sessions_N


@dataclass(frozen=True, slots=True)
class Losses:
    """Each trained token's loss, and whether a bound cut its gradient or took it away."""

    loss_N: Tensor
    clipped_N: Tensor


def checked_losses(losses: Losses, logprobs_N: Tensor) -> Losses:
    """Return a loss's result after a check. Raise `ResultMalformed`."""
    if not isinstance(losses, Losses):
        raise ResultMalformed(type(losses).__name__, Losses.__name__)
    expected = f"{list(logprobs_N.shape)}, one for each trained token"
    if losses.loss_N.shape != logprobs_N.shape:
        raise ResultMalformed(f"losses of shape {list(losses.loss_N.shape)}", expected)
    if not losses.loss_N.requires_grad:
        raise ResultMalformed("losses without a gradient", "those of trained log-probs")
    return losses


def ratio(log_ratios_N: Tensor) -> Tensor:
    """Return exp of the log ratios, kept finite."""
    return log_ratios_N.clamp(-LARGEST_LOG_RATIO, LARGEST_LOG_RATIO).exp()


def continued_exp(log_ratios_N: Tensor) -> Tensor:
    """Return exp, continued above the bound by its tangent there.

    The result is finite, and its gradient neither ends nor changes its sign.
    """
    near_N = log_ratios_N.clamp(max=LARGEST_LOG_RATIO)
    return near_N.exp() * (1 + log_ratios_N - near_N)


def binary_divergence(old_N: Tensor, new_N: Tensor, kind: Divergence) -> Tensor:
    """Return how far the choice between a token and all others moved, from the token's log-probs.

    For the probabilities p and q, `tv` is |p - q|, at most 1. `kl`, in nats, is p log(p / q) + (1 -
    p) log((1 - p) / (1 - q)). In float64, since 1 - q may be tiny.
    """
    p_N = old_N.double().exp()
    q_N = new_N.double().exp()
    if kind == "tv":
        return (p_N - q_N).abs()
    rest_N = ((1 - p_N).clamp(min=_LEAST) / (1 - q_N).clamp(min=_LEAST)).log()
    return p_N * (old_N - new_N).double() + (1 - p_N) * rest_N


def unit_sums(values_N: Tensor, units_N: NDArray[np.int32]) -> Tensor:
    """Return for each token the sum of values over its unit, without gradient.

    Summed on the host in float64: on a GPU the order of such sums, and their last digit, vary.
    """
    _, inverse_N = np.unique(units_N, return_inverse=True)
    sums_U = np.bincount(inverse_N, values_N.detach().double().cpu().numpy())
    return torch.from_numpy(sums_U[inverse_N]).to(values_N)


def unit_means(values_N: Tensor, units_N: NDArray[np.int32]) -> Tensor:
    """Return for each token the mean value over its unit, without gradient."""
    return unit_sums(values_N, units_N) / unit_sums(torch.ones_like(values_N), units_N)
