"""A surrogate of your own: tapered off-policy REINFORCE (TOPR), arXiv 2503.14286, equation 8.

What went well is learned whatever its ratio is. What went badly counts by its ratio, at most
`most`, so tokens that the policy has left already push it no further.
"""

import torch

from seamlessflow.trainer.backends.losses.tokens import Losses, ratio


def tapered(tokens, weights_N, settings, *, most=1.0):
    """Return the loss of each trained token, and where a bound took a part of its gradient."""
    ratios_N = ratio(tokens.log_ratios_N).detach()
    bad_N = tokens.advantages_N < 0
    factors_N = torch.where(bad_N, ratios_N.clamp(max=most), torch.ones_like(ratios_N))
    loss_N = -weights_N * factors_N * tokens.advantages_N * tokens.logprobs_N
    return Losses(loss_N, bad_N & (ratios_N > most))
