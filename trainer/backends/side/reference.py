"""The reference of divergences that becomes the policy every so many steps.

A policy that learns for long leaves any fixed reference, until the divergence holds it back.
Renewal of the reference is a part of ProRL, arXiv 2505.24864, which also begins the optimizer anew;
here the optimizer goes on. Weights and the count of steps are in the checkpoint. Called by
`models.py`.
"""

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from seamlessflow.trainer.backends.backend import ModelUnusable
from seamlessflow.trainer.backends.optimizer_state import REFERENCE, WEIGHTS, Keeping, adamw
from seamlessflow.trainer.backends.sharded.parts import Files, part_of
from seamlessflow.trainer.backends.side.frozen import FrozenModel
from seamlessflow.trainer.settings import OptimizerSection

STEPS = f"{REFERENCE}steps.safetensors"


class RenewedReference:
    """A reference with the steps that it has seen."""

    def __init__(
        self, model: FrozenModel, every: int, keeping: Keeping, policy: Mapping[str, Tensor]
    ) -> None:
        """`policy`: the weights that are trained. Raise `ModelUnusable` if it has other ones."""
        self._model, self._every, self._keeping = model, every, keeping
        self._steps = 0
        shapes = {name: tuple(weight.shape) for name, weight in model.weights().items()}
        if shapes != {name: tuple(weight.shape) for name, weight in policy.items()}:
            reason = (
                "trainer.reference_every makes the policy of it, whose weights have other shapes"
            )
            raise ModelUnusable(str(model.directory), reason)
        # It is never trained: a checkpoint keeps models with their optimizer, which has no state.
        self._untrained = adamw(model.weights().values(), OptimizerSection(), 0.0)

    def step_over(self, policy: Mapping[str, Tensor]) -> None:
        """Count a step; become the policy if it is time."""
        self._steps += 1
        if self._steps % self._every == 0:
            self._model.become(policy)

    def state(self) -> Files:
        """Return a copy of this rank's part of weights and count, on the host."""
        files = self._keeping.copied(self._model.module, self._untrained, REFERENCE)
        return {**files, STEPS: {"steps": part_of(torch.tensor([self._steps]))}}

    def load(self, directory: Path) -> None:
        """Go on from a checkpoint; one without a renewed reference begins here. Raise
        `ModelUnusable`.
        """
        if not (directory / f"{REFERENCE}{WEIGHTS}").exists():
            return
        self._keeping.load(directory, self._model.module, self._untrained, REFERENCE)
        try:
            self._steps = int(load_file(directory / STEPS)["steps"].item())
        except (OSError, KeyError, SafetensorError) as error:
            raise ModelUnusable(str(directory), f"{STEPS} cannot be read: {error}") from error
