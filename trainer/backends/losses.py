"""Losses: one value per trained token from its log-probs under the weights and under the engine.

The engine's log-probs are the old policy's; nothing is recomputed. A loss sees trained tokens only.
The back ends call it, sum it and divide by the step's count of trained tokens over all ranks.
Losses are registered by name (`LOSSES`, the setting `trainer.loss.name`). `_N` counts trained
tokens.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from trainer.settings import LossSection

LARGEST_LOG_RATIO = 20.0
"""Bound of log ratios: e^20 is far above any `cap`, and the exponential of much more overflows."""


@dataclass(frozen=True, slots=True)
class Losses:
    """The loss of each trained token, and whether the loss took its gradient away."""

    loss_N: Tensor
    clipped_N: Tensor


Loss = Callable[[Tensor, Tensor, LossSection], Losses]
"""Returns losses from the log ratios (weights to engine) and the advantages of N tokens."""


def ppo_clip(log_ratios_N: Tensor, advantages_N: Tensor, settings: LossSection) -> Losses:
    """Return PPO's clipped surrogate, arXiv 1707.06347.

    The lower and upper bounds are separate settings (arXiv 2503.14476).
    """
    ratios_N = ratio(log_ratios_N)
    low, high = 1 - settings.clip_low, 1 + settings.clip_high
    free_N = ratios_N * advantages_N
    bound_N = ratios_N.clamp(low, high) * advantages_N
    return Losses(-torch.minimum(free_N, bound_N), bound_N < free_N)


def tis(log_ratios_N: Tensor, advantages_N: Tensor, settings: LossSection) -> Losses:
    """Return the policy gradient weighted with the ratio truncated at `cap`.

    Truncated importance sampling: no token loses its gradient, those beyond the cap weigh less.
    arXiv 2506.13585 (CISPO).
    """
    ratios_N = ratio(log_ratios_N).detach()
    weights_N = ratios_N.clamp(max=settings.cap)
    return Losses(-weights_N * advantages_N * log_ratios_N, ratios_N > settings.cap)


def icepop(log_ratios_N: Tensor, advantages_N: Tensor, settings: LossSection) -> Losses:
    """Return the importance-weighted policy gradient, 0 for ratios outside [1 / cap, cap]."""
    ratios_N = ratio(log_ratios_N)
    outside_N = (ratios_N > settings.cap) | (ratios_N < 1 / settings.cap)
    return Losses(torch.where(outside_N, 0.0, -ratios_N * advantages_N), outside_N)


def ratio(log_ratios_N: Tensor) -> Tensor:
    """Return exp of the log ratios, kept finite."""
    return log_ratios_N.clamp(-LARGEST_LOG_RATIO, LARGEST_LOG_RATIO).exp()


LOSSES: Mapping[str, Loss] = {"ppo_clip": ppo_clip, "tis": tis, "icepop": icepop}
