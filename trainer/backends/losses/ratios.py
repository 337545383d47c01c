"""Ratios of probabilities: of a token, and of all trained tokens of a turn or a session.

`_N` counts the trained tokens of a micro-batch.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

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
