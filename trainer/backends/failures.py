"""Failures in a pass over an update's micro-batches: a loss raises, a gradient is not finite.

A rank that stopped in mid-pass would leave the others in a collective call. So it notes the failure
and goes on with losses that are zero. After the pass all ranks stop together. Called by the back
ends. `_N` counts a micro-batch's trained tokens.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from seamlessflow.trainer.backends.backend import UpdateFailed
from seamlessflow.trainer.backends.calls import Arrays
from seamlessflow.trainer.backends.losses.tokens import Losses, checked_losses
from seamlessflow.trainer.data.methods import MethodFailed, method
from seamlessflow.trainer.settings import TrainerSection

_MOST_CHAINS = 20


@dataclass(frozen=True, slots=True)
class GradientNorms:
    """An update's gradient norms before clipping, equal on all ranks."""

    policy: float
    values: float = 0.0
    """A value head's gradient norm; 0 without a head."""

    @property
    def finite(self) -> bool:
        """Return whether all norms are finite."""
        return math.isfinite(self.policy) and math.isfinite(self.values)


@dataclass(slots=True)
class PassFailures:
    """One pass's failures, in this process or on all ranks."""

    reason: str = ""
    """The first error that a loss raised; empty if none did."""
    wrong: int = 0
    """Trained tokens whose loss is not finite."""
    chains: list[int] = field(default_factory=list)
    """The first chains with such tokens, by their number in the update."""

    def losses(
        self,
        name: str,
        compute: Callable[[], Losses],
        logprobs_N: Tensor,
        chains_N: NDArray[np.int32],
    ) -> Losses:
        """Return the losses from `compute`, or zeros if it fails; note its failures."""
        try:
            with method("loss", name):
                losses = checked_losses(compute(), logprobs_N)
        except MethodFailed as failed:
            self.reason = self.reason or str(failed)
            return Losses(logprobs_N * 0, torch.zeros_like(logprobs_N, dtype=torch.bool))
        wrong_N = ~losses.loss_N.detach().isfinite()
        if wrong_N.any():
            self._add(int(wrong_N.sum()), chains_N[wrong_N.cpu().numpy()].tolist())
        return losses

    def with_others(self, others: Iterable["PassFailures"]) -> "PassFailures":
        """Return these failures together with other ranks' failures."""
        failures = PassFailures(self.reason, self.wrong, [*self.chains])
        for other in others:
            failures.reason = failures.reason or other.reason
            failures._add(other.wrong, other.chains)
        return failures

    def check(self, norms: GradientNorms, tokens: int, settings: TrainerSection) -> None:
        """Raise `UpdateFailed` if the update, with `tokens` trained tokens, cannot be applied."""
        if reason := self.why(norms, tokens, settings):
            raise UpdateFailed(reason, self.chains)

    def why(self, norms: GradientNorms, tokens: int, settings: TrainerSection) -> str:
        """Return why the update cannot be applied, and what to change; empty if it can be applied.

        `tokens`: how many trained tokens the update has.
        """
        if self.reason:
            return f"{self.reason}; repair it, or choose another trainer.loss"
        if norms.finite:
            return ""
        if not math.isfinite(norms.values) and not self.wrong:
            return (
                f"the gradient of the critic is not finite ({norms.values:g}), over {tokens:,} "
                "trained tokens: lower trainer.critic.lr"
            )
        finite = f"although the loss of each of {tokens:,} trained tokens is"
        which = f"{self.wrong:,} of {tokens:,} trained tokens have a loss that is not"
        remedy = "lower trainer.optimizer.lr or trainer.optimizer.clip_norm"
        if settings.compute != "float32":
            remedy += f", or compute in float32 instead of {settings.compute} (trainer.dtype)"
        return (
            f"the gradient of loss {settings.loss.chosen} is not finite ({norms.policy:g}), "
            f"{which if self.wrong else finite}: {remedy}"
        )

    def to_arrays(self) -> Arrays:
        """Return these failures as arrays."""
        return {
            "reason": np.frombuffer(self.reason.encode(), np.uint8),
            "wrong": np.array([self.wrong]),
            "chains": np.array(self.chains, np.int64),
        }

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> Self:
        """Return the failures from the arrays that `to_arrays` returned."""
        reason = np.asarray(arrays["reason"]).tobytes().decode()
        return cls(reason, int(arrays["wrong"].item()), [int(n) for n in arrays["chains"]])

    def _add(self, wrong: int, chains: Iterable[int]) -> None:
        self.wrong += wrong
        self.chains = list(dict.fromkeys([*self.chains, *chains]))[:_MOST_CHAINS]
