"""The input and the output of a loss, token by token. `_N` counts trained tokens."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class LossTokens:
    """The trained tokens of a micro-batch, with whole turns and sessions if the loss needs them."""

    logprobs_N: Tensor
    """Under the weights that are trained, with gradient."""

    engine_N: Tensor
    """Under the policy that sampled, as the engine reported them."""

    old_N: Tensor
    """Under the policy that a surrogate's ratio is to, without gradient."""

    advantages_N: Tensor
    entropies_N: Tensor
    """Of the policy where it predicts the token, in nats; with gradient if the loss rewards it."""

    reference_N: Tensor | None
    """Log-probs under the reference; None if the loss has no divergence from it."""

    turns_N: NDArray[np.int32]
    sessions_N: NDArray[np.int32]

    @property
    def log_ratios_N(self) -> Tensor:
        """The log ratio of the weights to the old policy."""
        return self.logprobs_N - self.old_N

    def units_N(self, level: str) -> NDArray[np.int32]:
        """Return the number of the turn or the session of each token."""
        return self.turns_N if level == "turn" else self.sessions_N


@dataclass(frozen=True, slots=True)
class Losses:
    """The loss of each trained token, and whether a bound cut its gradient or took it away."""

    loss_N: Tensor
    clipped_N: Tensor
