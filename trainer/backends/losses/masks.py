"""Masks: tokens that leave the loss because the policy has moved away from the one that sampled.

Registered by name (`MASKS`, the sections of `trainer.loss.masks`). They see the ratio of the
weights that are trained to the engine's policy, whatever the surrogate's own ratio is to, so both a
mismatch of engine and trainer and older weights count. A token that leaves has no policy gradient.
It stays in the aggregation, and so in its denominators, and keeps entropy bonus and divergence from
the reference. `_N` counts trained tokens.
"""

import math
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from seamlessflow.trainer.backends.losses.ratios import unit_means, unit_sums
from seamlessflow.trainer.backends.losses.tokens import LossTokens
from seamlessflow.trainer.masks import MasksSection

Mask = Callable[[LossTokens, Tensor, MasksSection], Tensor]
"""Returns the tokens that leave, from all tokens, their log ratios to the engine, and settings."""


def geometric_mean(tokens: LossTokens, log_ratios_N: Tensor, masks: MasksSection) -> Tensor:
    """Return the tokens of units whose geometric mean of the ratios is outside the bounds.

    Geometric rejection (Geo-RS) of Liu, Li et al., When speed kills stability (2025), part 3: the
    mean does not fall with the length, as the product of all ratios does.
    """
    section = masks.geometric_mean
    means_N = unit_means(log_ratios_N, tokens.units_N(section.level))
    return _outside(means_N, section.low, section.high)


def outlier(tokens: LossTokens, log_ratios_N: Tensor, masks: MasksSection) -> Tensor:
    """Return the tokens whose own ratio is outside the bounds, with all of their unit.

    The veto by token of the same text, part 3: one token that the trainer finds impossible shows
    that the whole session went astray. At level `token` it leaves alone.
    """
    section = masks.outlier
    outside_N = _outside(log_ratios_N, section.low, section.high)
    if section.level == "token":
        return outside_N
    return unit_sums(outside_N.to(log_ratios_N), tokens.units_N(section.level)) > 0


def off_policy(tokens: LossTokens, log_ratios_N: Tensor, masks: MasksSection) -> Tensor:
    """Return the tokens with a negative advantage whose unit has a mean of log(engine / policy)
    above the bound.

    Off-policy sequence masking, DeepSeek-V3.2, arXiv 2512.02556, section 3.1 (Scaling GRPO): a
    policy learns least from mistakes that it would not make any more.
    """
    section = masks.off_policy
    drifts_N = -unit_means(log_ratios_N, tokens.units_N(section.level))
    return (tokens.advantages_N < 0) & (drifts_N > (section.most or 0.0))


MASKS: Mapping[str, Mask] = {
    "geometric_mean": geometric_mean,
    "outlier": outlier,
    "off_policy": off_policy,
}


def masked(tokens: LossTokens, masks: MasksSection) -> Tensor:
    """Return the tokens that leave the loss by any mask that is used."""
    log_ratios_N = (tokens.logprobs_N - tokens.engine_N).detach()
    found_N = torch.zeros_like(log_ratios_N, dtype=torch.bool)
    for name, mask in MASKS.items():
        if getattr(masks, name).used:
            found_N = found_N | mask(tokens, log_ratios_N, masks)
    return found_N


def _outside(log_ratios_N: Tensor, low: float | None, high: float | None) -> Tensor:
    least = -math.inf if low is None else math.log(low)
    most = math.inf if high is None else math.log(high)
    return (log_ratios_N < least) | (log_ratios_N > most)
