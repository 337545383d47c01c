"""Trials of a user's surrogate and correction, each on a few trained tokens.

A trial returns what the function gave, so that two can be compared. It raises what the function
raises, and `ResultMalformed`.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from seamlessflow.infra.user_functions import ResultMalformed
from seamlessflow.trainer.backends.losses.corrections import CorrectionWeights
from seamlessflow.trainer.backends.losses.tokens import LossTokens, checked_losses
from seamlessflow.trainer.loss import LossSection

_TURNS = (0, 0, 1, 0, 0)
_SESSIONS = (0, 0, 0, 1, 1)


def few_tokens() -> LossTokens:
    """Return five trained tokens from two sessions, with ratios on both sides of 1."""
    logprobs_N = torch.tensor([-0.1, -1.5, -3.0, -0.7, -2.0], requires_grad=True)
    engine_N = torch.tensor([-0.2, -1.4, -3.1, -0.7, -1.0])
    return LossTokens(
        logprobs_N=logprobs_N,
        engine_N=engine_N,
        old_N=engine_N + 0.05,
        advantages_N=torch.tensor([1.0, 1.0, 1.0, -0.5, -0.5]),
        entropies_N=torch.tensor([0.3, 1.0, 2.0, 0.5, 1.5]),
        reference_N=None,
        turns_N=np.array(_TURNS, np.int32),
        sessions_N=np.array(_SESSIONS, np.int32),
    )


def try_surrogate(function: Callable[..., Any]) -> list[float]:
    """Call a function for the seam `trainer.loss.surrogate`; return losses and their gradient."""
    tokens = few_tokens()
    weights_N = torch.full_like(tokens.engine_N, 0.9)
    losses = checked_losses(function(tokens, weights_N, LossSection()), tokens.logprobs_N)
    (gradient_N,) = torch.autograd.grad(losses.loss_N.sum(), tokens.logprobs_N)
    return _finite([losses.loss_N.detach(), gradient_N], "loss and gradient")


def try_correction(function: Callable[..., Any]) -> list[float]:
    """Call a function for the seam `trainer.loss.correction`; return its weights."""
    tokens = few_tokens()
    weights = function(tokens, LossSection())
    if not isinstance(weights, CorrectionWeights):
        raise ResultMalformed(type(weights).__name__, CorrectionWeights.__name__)
    if weights.weights_N.shape != tokens.engine_N.shape:
        shape = f"weights of shape {list(weights.weights_N.shape)}"
        raise ResultMalformed(shape, f"{list(tokens.engine_N.shape)}, one for each trained token")
    if weights.weights_N.requires_grad:
        raise ResultMalformed("weights with a gradient", "weights without one: detach() them")
    return _finite([weights.weights_N], "weight")


def _finite(tensors: list[Tensor], what: str) -> list[float]:
    values: list[float] = torch.cat(tensors).tolist()
    if not np.isfinite(values).all():
        raise ResultMalformed(f"a {what} that is not finite", "a finite one")
    return values
