"""The trained tokens' loss: a corrected surrogate and regularisers.

A loss sees only trained tokens. The back ends call it and sum it with the tokens' weights
(`MicroBatch.weights_N`), which make the aggregation. `_N` counts trained tokens.
"""

import torch
from torch import Tensor

from seamlessflow.infra.user_functions import chosen
from seamlessflow.trainer.backends.losses.corrections import CORRECTIONS, masked
from seamlessflow.trainer.backends.losses.surrogates import SURROGATES
from seamlessflow.trainer.backends.losses.tokens import Losses, LossTokens, continued_exp, ratio
from seamlessflow.trainer.data.chains import Column
from seamlessflow.trainer.data.packing import MicroBatch
from seamlessflow.trainer.loss import LossSection


def loss_tokens(
    batch: MicroBatch, logprobs_N: Tensor, entropies_N: Tensor, settings: LossSection
) -> LossTokens:
    """Return a micro-batch's trained tokens, scored under the weights (with gradient)."""

    def column(name: Column) -> Tensor | None:
        # A rank with less to do has a micro-batch without tokens, and so without columns.
        found_N = batch.columns.get(name)
        return None if found_N is None else torch.from_numpy(found_N).to(logprobs_N.device)

    engine_N = torch.from_numpy(batch.logprobs_N).to(logprobs_N.device)
    return LossTokens(
        logprobs_N=logprobs_N,
        engine_N=engine_N,
        old_N=old_policy(logprobs_N, engine_N, settings, column(Column.PROXIMAL)),
        advantages_N=torch.from_numpy(batch.advantages_N).to(logprobs_N.device),
        entropies_N=entropies_N,
        reference_N=column(Column.REFERENCE) if settings.kl else None,
        turns_N=batch.turns_N,
        sessions_N=batch.sessions_N,
        pair_losses_N=column(Column.PAIR_LOSS),
    )


def token_losses(tokens: LossTokens, settings: LossSection) -> Losses:
    """Return each token's loss."""
    correct = chosen(CORRECTIONS, settings.chosen_correction, settings.functions)
    weights = correct(tokens, settings)
    masked_N = masked(tokens, settings.masks)
    weights_N = weights.weights_N.masked_fill(masked_N, 0.0)
    surrogate = chosen(SURROGATES, settings.chosen_surrogate, settings.functions)
    losses = surrogate(tokens, weights_N, settings)
    loss_N = losses.loss_N
    if settings.entropy:
        loss_N = loss_N - settings.entropy * tokens.entropies_N
    if settings.kl and tokens.reference_N is not None:
        far_N = divergence(tokens, tokens.reference_N, settings)
        loss_N = loss_N + settings.kl * (_weighed(far_N, tokens) if settings.kl_weighted else far_N)
    return Losses(loss_N, losses.clipped_N | weights.clipped_N | masked_N)


def divergence(tokens: LossTokens, reference_N: Tensor, settings: LossSection) -> Tensor:
    """Return an estimate of KL(policy || reference) at each token, never negative.

    Let x = log reference - log policy (http://joschu.net/blog/kl-approx.html). k2 is x^2 / 2; its
    mean gradient is the divergence's. k3 is exp(x) - x - 1; its mean value is the divergence, but
    its mean gradient is that of KL(reference || policy). Means are over tokens that the policy
    sampled. `x` has no bound: the further a token is from the reference, the more it is drawn back.
    """
    differences_N = reference_N - tokens.logprobs_N
    if settings.kl_estimator == "k2":
        return differences_N.square() / 2
    return continued_exp(differences_N) - differences_N - 1


def old_policy(
    logprobs_N: Tensor,
    engine_N: Tensor,
    settings: LossSection,
    proximal_N: Tensor | None = None,
) -> Tensor:
    """Return the log-probs under the old policy, the denominator in the surrogate's ratio.

    Without a correction it is the engine's policy. With a correction it has the weights before the
    step (`proximal_N`, the decoupled objective in arXiv 2505.24298). If that is None, a step is one
    update: these are the trained weights, and every ratio is 1.
    """
    if settings.chosen_correction == "none":
        return engine_N
    return logprobs_N.detach() if proximal_N is None else proximal_N


def _weighed(divergences_N: Tensor, tokens: LossTokens) -> Tensor:
    """Return divergences times the ratio weights / engine, with the ratio's gradient.

    Means over the engine's tokens are then means over the policy's. So k3 has both the value and
    the gradient of KL(policy || reference). This is DeepSeek-V3.2's unbiased estimate, arXiv
    2512.02556, section 3.1.
    """
    return divergences_N * ratio(tokens.logprobs_N - tokens.engine_N)
