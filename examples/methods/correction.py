"""A correction of your own: importance weights that are flattened by an exponent.

With power 1 they are the ratio of the old policy to the engine's; with 0 there is no correction.
"""

from seamlessflow.trainer.backends.losses.corrections import CorrectionWeights
from seamlessflow.trainer.backends.losses.tokens import ratio


def flattened(tokens, settings, *, power=0.5):
    """Return the weight of each trained token, and whether a bound cut it."""
    ratios_N = ratio((tokens.old_N - tokens.engine_N).detach() * power)
    return CorrectionWeights(ratios_N.clamp(max=settings.cap), ratios_N > settings.cap)
