"""The loss of trained tokens: a surrogate, weighted by a correction, less the entropy bonus.

A loss sees trained tokens only. The back ends call it, and sum it by the weights of the tokens
(`MicroBatch.weights_N`), which make the aggregation. `_N` counts trained tokens.
"""

from torch import Tensor

from trainer.backends.losses.corrections import CORRECTIONS
from trainer.backends.losses.surrogates import SURROGATES
from trainer.backends.losses.tokens import Losses, LossTokens
from trainer.loss import LossSection


def token_losses(tokens: LossTokens, settings: LossSection) -> Losses:
    """Return the loss of each token."""
    weights = CORRECTIONS[settings.chosen_correction](tokens, settings)
    found = SURROGATES[settings.chosen_surrogate](tokens, weights.weights_N, settings)
    loss_N = found.loss_N
    if settings.entropy:
        loss_N = loss_N - settings.entropy * tokens.entropies_N
    return Losses(loss_N, found.clipped_N | weights.clipped_N)


def old_policy(logprobs_N: Tensor, engine_N: Tensor, settings: LossSection) -> Tensor:
    """Return the log-probs under the policy that the surrogate's ratio is to.

    Without a correction that is the engine's. With one it is that of the weights at the begin of
    the batch, which at one update a batch are the trained ones: every ratio is 1.
    """
    return engine_N if settings.chosen_correction == "none" else logprobs_N.detach()
