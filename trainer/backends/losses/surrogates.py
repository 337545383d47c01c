"""Surrogates: a trained token's loss, whose gradient is the step's direction.

Registered by name (`SURROGATES`, the setting `trainer.loss.surrogate`). A surrogate multiplies with
the correction's weights w (`corrections.py`), which are at least 0. Names: r is the ratio weights /
old policy, A the advantage, sg a value without gradient. `_N` counts trained tokens.
"""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from seamlessflow.trainer.backends.losses.tokens import (
    Losses,
    LossTokens,
    binary_divergence,
    ratio,
    unit_means,
)
from seamlessflow.trainer.loss import LossSection

Surrogate = Callable[[LossTokens, Tensor, LossSection], Losses]


def ppo_clip(tokens: LossTokens, weights_N: Tensor, settings: LossSection) -> Losses:
    """Return PPO's clipped surrogate -w min(r A, clip(r) A), arXiv 1707.06347, equation 7.

    The lower and upper bounds are separate settings (arXiv 2503.14476). `dual_clip` c bounds it for
    negative advantages: -w max(min(r A, clip(r) A), c A), arXiv 1912.09729.
    """
    advantages_N = tokens.advantages_N
    kept_N, clipped_N = _clipped(ratio(tokens.log_ratios_N), advantages_N, settings)
    if (dual := settings.dual_bound) is not None:
        bound_N = dual * advantages_N
        beyond_N = (advantages_N < 0) & (bound_N > kept_N)
        kept_N = torch.where(beyond_N, bound_N, kept_N)
        clipped_N = clipped_N | beyond_N
    return Losses(-(kept_N * weights_N), clipped_N)


def gspo(tokens: LossTokens, weights_N: Tensor, settings: LossSection) -> Losses:
    """Return -w min(s A, clip(s) A), s = sg(exp of the unit's mean log r) r / sg(r).

    The unit is a turn or a session; the mean is over its trained tokens. GSPO-token, arXiv
    2507.18071, section 4.3: each token has the unit's ratio and its own advantage.
    """
    log_ratios_N = tokens.log_ratios_N
    means_N = unit_means(log_ratios_N, tokens.units_N(settings.ratio_level or "session"))
    ratios_N = ratio(means_N + (log_ratios_N - log_ratios_N.detach()))
    kept_N, clipped_N = _clipped(ratios_N, tokens.advantages_N, settings)
    return Losses(-(kept_N * weights_N), clipped_N)


def cispo(tokens: LossTokens, weights_N: Tensor, settings: LossSection) -> Losses:
    """Return -w sg(min(r, cap)) A log r: no token loses its gradient, those beyond weigh less.

    CISPO, arXiv 2506.13585, with only an upper bound.
    """
    log_ratios_N = tokens.log_ratios_N
    ratios_N = ratio(log_ratios_N).detach()
    factors_N = ratios_N.clamp(max=settings.cap) * weights_N
    return Losses(-factors_N * tokens.advantages_N * log_ratios_N, ratios_N > settings.cap)


def sapo(tokens: LossTokens, weights_N: Tensor, settings: LossSection) -> Losses:
    """Return -w (4 / t) sigmoid(t (r - 1)) A, whose gradient falls smoothly on both sides of r = 1.

    Soft adaptive policy optimization, arXiv 2511.20347. The gate f(r) has a temperature t: one
    value for positive advantages and another for all others. At r = 1 the gradient is that of r A.
    """
    ratios_N = ratio(tokens.log_ratios_N)
    advantages_N = tokens.advantages_N
    heats_N = torch.full_like(advantages_N, settings.gate_negative)
    heats_N = heats_N.masked_fill(advantages_N > 0, settings.gate_positive)
    gates_N = torch.sigmoid(heats_N * (ratios_N - 1)) * (4 / heats_N)
    return Losses(-(gates_N * weights_N) * advantages_N, _none(gates_N))


def dppo(tokens: LossTokens, weights_N: Tensor, settings: LossSection) -> Losses:
    """Return -w M r A; M is 0 where the step would lead further than the bound, and 1 elsewhere.

    Divergence proximal policy optimization, arXiv 2602.04879, with its binary approximations (the
    token against all others). M is 0 if the divergence from the old policy exceeds
    `divergence_bound`, and the gradient increases it. The gradient does so for r > 1 with A > 0,
    and for r < 1 with A < 0.
    """
    ratios_N = ratio(tokens.log_ratios_N)
    advantages_N = tokens.advantages_N
    apart_N = binary_divergence(tokens.old_N, tokens.logprobs_N.detach(), settings.divergence)
    further_N = torch.where(advantages_N > 0, ratios_N > 1, (ratios_N < 1) & (advantages_N < 0))
    beyond_N = further_N & (apart_N > settings.divergence_bound)
    return Losses(-torch.where(beyond_N, 0.0, ratios_N * advantages_N) * weights_N, beyond_N)


def policy_gradient(tokens: LossTokens, weights_N: Tensor, _: LossSection) -> Losses:
    """Return -w A p / sg(p), p the token's probability: its gradient is -w A grad log p.

    REINFORCE (Williams, 1992). At equal policies the value is PPO's.
    """
    own_N = (tokens.logprobs_N - tokens.logprobs_N.detach()).exp()
    return Losses(-(own_N * weights_N) * tokens.advantages_N, _none(own_N))


def cloning(tokens: LossTokens, weights_N: Tensor, _: LossSection) -> Losses:
    """Return -w log p, whatever the advantage: behaviour cloning, or supervised fine-tuning."""
    return Losses(-weights_N * tokens.logprobs_N, _none(weights_N))


def pairs_squared(tokens: LossTokens, _: Tensor, __: LossSection) -> Losses:
    """Return the token's part of (h - 1 / (2 eta))^2, h a pair's margin by mean log-probs a token.

    Multiplayer Nash preference optimization, arXiv 2509.23102 (`trainer/data/credit/pairs.py`).
    """
    return _of_pairs(tokens)


def pairs_logistic(tokens: LossTokens, _: Tensor, __: LossSection) -> Losses:
    """Return the token's part of -log sigmoid(beta h), h a pair's margin by log-probs of sessions.

    Direct preference optimization, arXiv 2305.18290 (`trainer/data/credit/pairs.py`).
    """
    return _of_pairs(tokens)


def _of_pairs(tokens: LossTokens) -> Losses:
    """Return L - A (log p - sg(log p)), L the token's part of the losses, -A their derivative."""
    own_N = tokens.logprobs_N - tokens.logprobs_N.detach()
    losses_N = -tokens.advantages_N * own_N
    if tokens.pair_losses_N is not None:
        losses_N = losses_N + tokens.pair_losses_N
    return Losses(losses_N, _none(losses_N))


def _clipped(
    ratios_N: Tensor, advantages_N: Tensor, settings: LossSection
) -> tuple[Tensor, Tensor]:
    """Return min(r A, clip(r) A), and where the clip took the gradient away."""
    low = 1 - settings.clip_low
    high = 1 + settings.clip_high
    free_N = ratios_N * advantages_N
    bound_N = ratios_N.clamp(low, high) * advantages_N
    return torch.minimum(free_N, bound_N), bound_N < free_N


def _none(values_N: Tensor) -> Tensor:
    return torch.zeros_like(values_N, dtype=torch.bool)


SURROGATES: Mapping[str, Surrogate] = {
    "ppo_clip": ppo_clip,
    "gspo": gspo,
    "cispo": cispo,
    "sapo": sapo,
    "dppo": dppo,
    "policy_gradient": policy_gradient,
    "cloning": cloning,
    "pairs_squared": pairs_squared,
    "pairs_logistic": pairs_logistic,
}
