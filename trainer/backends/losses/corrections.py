"""Corrections: weights for tokens that another policy sampled than the one of the ratio.

The engine computes with other kernels, and may have had older weights. A correction weighs a token
with the ratio of the old policy (`LossTokens.old_N`) to the engine's; the surrogate's own ratio is
that of the weights to the old policy. Registered by name (`CORRECTIONS`, the setting
`trainer.loss.correction`); without one the old policy is the engine's, so there is nothing to
correct. No gradient passes through a weight. `_N` counts trained tokens.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from seamlessflow.trainer.backends.losses.ratios import ratio, unit_sums
from seamlessflow.trainer.backends.losses.tokens import LossTokens
from seamlessflow.trainer.loss import LossSection


@dataclass(frozen=True, slots=True)
class CorrectionWeights:
    """The factor of each token's loss, and whether `cap` bounded it."""

    weights_N: Tensor
    clipped_N: Tensor


Correction = Callable[[LossTokens, LossSection], CorrectionWeights]


def uncorrected(tokens: LossTokens, _: LossSection) -> CorrectionWeights:
    """Return 1 for each token."""
    ones_N = torch.ones_like(tokens.engine_N)
    return CorrectionWeights(ones_N, torch.zeros_like(ones_N, dtype=torch.bool))


def tis(tokens: LossTokens, settings: LossSection) -> CorrectionWeights:
    """Return min(w, cap), w = old policy / engine: truncated importance sampling.

    At level `turn` or `session` w is the product over its trained tokens, one weight for all of
    them. Ionides, Truncated importance sampling (2008).
    """
    log_ratios_N = (tokens.old_N - tokens.engine_N).detach()
    if settings.correction_level != "token":
        log_ratios_N = unit_sums(log_ratios_N, tokens.units_N(settings.correction_level))
    ratios_N = ratio(log_ratios_N)
    return CorrectionWeights(ratios_N.clamp(max=settings.cap), ratios_N > settings.cap)


def icepop(tokens: LossTokens, settings: LossSection) -> CorrectionWeights:
    """Return w = old policy / engine of each token, 0 outside [floor, cap].

    IcePop, arXiv 2510.18855: M(w; alpha, beta), with 0.5 and 5 there. Without `floor` the bounds
    are symmetric, [1 / cap, cap].
    """
    ratios_N = ratio((tokens.old_N - tokens.engine_N).detach())
    floor = 1 / settings.cap if settings.floor is None else settings.floor
    outside_N = (ratios_N > settings.cap) | (ratios_N < floor)
    return CorrectionWeights(torch.where(outside_N, 0.0, ratios_N), outside_N)


CORRECTIONS: Mapping[str, Correction] = {"none": uncorrected, "tis": tis, "icepop": icepop}
