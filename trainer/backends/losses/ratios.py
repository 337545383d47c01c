"""Ratios of probabilities: of a token, and of all trained tokens of a turn or a session.

`_N` counts the trained tokens of a micro-batch.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from seamlessflow.trainer.loss import Divergence

_LEAST = 1e-12
"""Least probability of all other tokens, so that none is divided by zero."""

LARGEST_LOG_RATIO = 20.0
"""Bound of log ratios: e^20 is far above any `cap`, and the exponential of much more overflows."""


def ratio(log_ratios_N: Tensor) -> Tensor:
    """Return exp of the log ratios, kept finite."""
    return log_ratios_N.clamp(-LARGEST_LOG_RATIO, LARGEST_LOG_RATIO).exp()


def continued_exp(log_ratios_N: Tensor) -> Tensor:
    """Return exp, which beyond the bound goes on as its tangent there: finite, and with a gradient
    that neither ends nor turns.
    """
    near_N = log_ratios_N.clamp(max=LARGEST_LOG_RATIO)
    return near_N.exp() * (1 + log_ratios_N - near_N)


def binary_divergence(old_N: Tensor, new_N: Tensor, kind: Divergence) -> Tensor:
    """Return how far the choice between a token and all others moved, from two log-probs of it.

    With the probabilities p and q, `tv` is |p - q|, at most 1, and `kl` is
    p log(p / q) + (1 - p) log((1 - p) / (1 - q)) in nats. In float64, since 1 - q may be tiny.
    """
    p_N, q_N = old_N.double().exp(), new_N.double().exp()
    if kind == "tv":
        return (p_N - q_N).abs()
    rest_N = ((1 - p_N).clamp(min=_LEAST) / (1 - q_N).clamp(min=_LEAST)).log()
    return p_N * (old_N - new_N).double() + (1 - p_N) * rest_N


def unit_sums(values_N: Tensor, units_N: NDArray[np.int32]) -> Tensor:
    """Return for each token the sum of the values of its unit's tokens, without gradient.

    Summed on the host in float64: on a GPU the order of such sums, and their last digit, vary.
    """
    _, inverse_N = np.unique(units_N, return_inverse=True)
    sums_U = np.bincount(inverse_N, values_N.detach().double().cpu().numpy())
    return torch.from_numpy(sums_U[inverse_N]).to(values_N)


def unit_means(values_N: Tensor, units_N: NDArray[np.int32]) -> Tensor:
    """Return for each token the mean of the values of its unit's tokens, without gradient."""
    return unit_sums(values_N, units_N) / unit_sums(torch.ones_like(values_N), units_N)
