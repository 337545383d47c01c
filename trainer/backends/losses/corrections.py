"""Corrections for tokens that another policy sampled: weights, and masks that remove tokens.

The engine has other kernels than the trainer, and may have had older weights. A correction weighs a
token with the ratio old policy (`LossTokens.old_N`) / engine. The surrogate's own ratio is trained
weights / old policy. Corrections are registered by name (`CORRECTIONS`, the setting
`trainer.loss.correction`). Without a correction the old policy is the engine's. No gradient passes
through a weight.

Masks (`MASKS`, the sections in `trainer.loss.masks`) always see the ratio trained weights / engine.
So they notice older weights, and a mismatch between engine and trainer. A removed token has no
policy gradient. It stays in the aggregation, and so in its denominators. It also keeps entropy
bonus and divergence from the reference. `_N` counts trained tokens.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from seamlessflow.trainer.backends.losses.tokens import LossTokens, ratio, unit_means, unit_sums
from seamlessflow.trainer.loss import LossSection, MasksSection


@dataclass(frozen=True, slots=True)
class CorrectionWeights:
    """The factor for each token's loss, and whether a bound (`cap` or `floor`) applied."""

    weights_N: Tensor
    clipped_N: Tensor


Correction = Callable[[LossTokens, LossSection], CorrectionWeights]
Mask = Callable[[LossTokens, Tensor, MasksSection], Tensor]
"""Takes all tokens, their log ratios to the engine, and settings; returns the tokens to remove."""


def uncorrected(tokens: LossTokens, _: LossSection) -> CorrectionWeights:
    """Return 1 for each token."""
    ones_N = torch.ones_like(tokens.engine_N)
    return CorrectionWeights(ones_N, torch.zeros_like(ones_N, dtype=torch.bool))


def tis(tokens: LossTokens, settings: LossSection) -> CorrectionWeights:
    """Return min(w, cap), w = old policy / engine: truncated importance sampling.

    At level `turn` or `session` all trained tokens in the unit have one w, the product over them.
    Ionides, Truncated importance sampling (2008).
    """
    log_ratios_N = (tokens.old_N - tokens.engine_N).detach()
    if settings.correction_level != "token":
        log_ratios_N = unit_sums(log_ratios_N, tokens.units_N(settings.correction_level))
    ratios_N = ratio(log_ratios_N)
    return CorrectionWeights(ratios_N.clamp(max=settings.cap), ratios_N > settings.cap)


def icepop(tokens: LossTokens, settings: LossSection) -> CorrectionWeights:
    """Return each token's w = old policy / engine, 0 outside [floor, cap].

    IcePop, arXiv 2510.18855: M(w; alpha, beta), with 0.5 and 5 there. Without `floor` the bounds
    are symmetric, [1 / cap, cap].
    """
    ratios_N = ratio((tokens.old_N - tokens.engine_N).detach())
    floor = 1 / settings.cap if settings.floor is None else settings.floor
    outside_N = (ratios_N > settings.cap) | (ratios_N < floor)
    return CorrectionWeights(torch.where(outside_N, 0.0, ratios_N), outside_N)


def geometric_mean(tokens: LossTokens, log_ratios_N: Tensor, masks: MasksSection) -> Tensor:
    """Return the tokens in units whose geometric mean ratio is outside the bounds.

    Geometric rejection (Geo-RS): Liu, Li et al., When speed kills stability (2025), part 3. Unlike
    the product over all ratios, the mean does not fall with the length.
    """
    section = masks.geometric_mean
    means_N = unit_means(log_ratios_N, tokens.units_N(section.level))
    return _outside(means_N, section.low, section.high)


def outlier(tokens: LossTokens, log_ratios_N: Tensor, masks: MasksSection) -> Tensor:
    """Return the tokens whose own ratio is outside the bounds, with their whole unit.

    The veto by token from the same text, part 3. One token that the trainer finds impossible shows
    that the whole session went astray. At level `token` only that token is removed.
    """
    section = masks.outlier
    outside_N = _outside(log_ratios_N, section.low, section.high)
    if section.level == "token":
        return outside_N
    return unit_sums(outside_N.to(log_ratios_N), tokens.units_N(section.level)) > 0


def off_policy(tokens: LossTokens, log_ratios_N: Tensor, masks: MasksSection) -> Tensor:
    """Return the tokens with a negative advantage in units that drifted further than the bound.

    A unit's drift is its mean log(engine / policy). Off-policy sequence masking: DeepSeek-V3.2,
    arXiv 2512.02556, section 3.1 (Scaling GRPO). A policy learns least from mistakes that it would
    no longer make.
    """
    section = masks.off_policy
    drifts_N = -unit_means(log_ratios_N, tokens.units_N(section.level))
    return (tokens.advantages_N < 0) & (drifts_N > (section.most or 0.0))


CORRECTIONS: Mapping[str, Correction] = {"none": uncorrected, "tis": tis, "icepop": icepop}
MASKS: Mapping[str, Mask] = {
    "geometric_mean": geometric_mean,
    "outlier": outlier,
    "off_policy": off_policy,
}


def masked(tokens: LossTokens, masks: MasksSection) -> Tensor:
    """Return the tokens that any used mask removes from the loss."""
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
