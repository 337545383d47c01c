"""Models that no gradient trains (reference, teacher, opponents), and their log-probs for tokens.

They are on the host except while they compute. A reference may become the policy every
`trainer.reference_every` steps: a policy that learns for long leaves any fixed reference, until the
divergence holds it back. ProRL, arXiv 2505.24864, renews the reference in this way. It also begins
the optimizer anew; here the optimizer goes on. Opponents are copies of earlier weights (MNPO, arXiv
2509.23102). The checkpoint has weights and step counts, so no lease keeps published weights for a
reference or opponents. Called by the back ends.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers import PreTrainedModel

from seamlessflow.trainer.backends.backend import ModelUnusable
from seamlessflow.trainer.backends.forward import Forward
from seamlessflow.trainer.backends.model import forget_copies, load_model
from seamlessflow.trainer.backends.optimizer_state import (
    OPPONENT,
    REFERENCE,
    WEIGHTS,
    Keeping,
    adamw,
)
from seamlessflow.trainer.backends.sharded.parts import FileParts, part_of
from seamlessflow.trainer.data.chains import NOWHERE, OPPONENTS, Column
from seamlessflow.trainer.data.packing import MicroBatch
from seamlessflow.trainer.parallelism import Dtype
from seamlessflow.trainer.settings import OptimizerSection

STEPS = f"{REFERENCE}steps.safetensors"
VERSIONS = f"{OPPONENT}versions.safetensors"
Placed = Callable[[PreTrainedModel], PreTrainedModel]
"""Returns a model as the back end keeps models: sharded, if it shards them."""


class FrozenModel:
    """A model with its directory's weights, until it takes over others."""

    def __init__(
        self, directory: Path, dtype: Dtype, placed: Placed, empty: bool, renewed: bool = False
    ) -> None:
        """`empty` as for `load_model`; a model to be `renewed` is kept as trained models are.

        Raise `ModelUnusable`.
        """
        self.directory = directory
        model = load_model(directory, dtype, empty)
        for parameter in model.parameters():
            parameter.requires_grad_(renewed)
        self._model = placed(model)
        self._forward = Forward(self._model)

    @property
    def module(self) -> PreTrainedModel:
        """The model itself."""
        return self._model

    def weights(self) -> Mapping[str, nn.Parameter]:
        """Return its parameters by name."""
        return dict(self._model.named_parameters())

    @torch.no_grad()
    def become(self, weights: Mapping[str, Tensor]) -> None:
        """Take over another model's weights, which have the same shapes, in this model's type."""
        forget_copies(self._model)
        for name, parameter in self.weights().items():
            parameter.copy_(weights[name].detach().to(parameter.device))

    @torch.no_grad()
    def logprobs(
        self,
        batches: Sequence[MicroBatch],
        device: torch.device,
        autocast: Callable[[], AbstractContextManager[object]],
    ) -> list[NDArray[np.float32]]:
        """Return the log-probs for each micro-batch's trained tokens (N)."""
        home = self._model.device
        nn.Module.to(self._model, device)
        with autocast():
            logprobs = [self._forward(batch)[0].float().cpu().numpy() for batch in batches]
        nn.Module.to(self._model, home)
        return logprobs


class RenewedReference:
    """A reference that becomes the policy after every few steps."""

    def __init__(
        self, model: FrozenModel, every: int, keeping: Keeping, policy: Mapping[str, Tensor]
    ) -> None:
        """`policy`: the trained weights. Raise `ModelUnusable` if `model` has other shapes."""
        self._model = model
        self._every = every
        self._keeping = keeping
        self._steps = 0
        shapes = {name: tuple(weight.shape) for name, weight in model.weights().items()}
        if shapes != {name: tuple(weight.shape) for name, weight in policy.items()}:
            reason = (
                "trainer.reference_every makes the policy of it, whose weights have other shapes"
            )
            raise ModelUnusable(str(model.directory), reason)
        # Never used to train: a checkpoint keeps each model with an optimizer, here without state.
        self._untrained = adamw(model.weights().values(), OptimizerSection(), 0.0)

    def step_over(self, policy: Mapping[str, Tensor]) -> None:
        """Count a step; become the policy if it is time."""
        self._steps += 1
        if self._steps % self._every == 0:
            self._model.become(policy)

    def state(self) -> FileParts:
        """Return a host copy of this rank's part of the weights, and the step count."""
        files = self._keeping.copied(self._model.module, self._untrained, REFERENCE)
        return {**files, STEPS: {"steps": part_of(torch.tensor([self._steps]))}}

    def load(self, directory: Path) -> None:
        """Go on from a checkpoint, if it has a renewed reference. Raise `ModelUnusable`."""
        if not (directory / f"{REFERENCE}{WEIGHTS}").exists():
            return
        self._keeping.load(directory, self._model.module, self._untrained, REFERENCE)
        try:
            self._steps = int(load_file(directory / STEPS)["steps"].item())
        except (OSError, KeyError, SafetensorError) as error:
            raise ModelUnusable(str(directory), f"{STEPS} cannot be read: {error}") from error


class Opponents:
    """Earlier policies, each with its version; they begin as the initial policy."""

    def __init__(self, models: Sequence[FrozenModel], every: int, keeping: Keeping) -> None:
        """`models`: one for each opponent, with the initial policy's weights.

        Every `every` trained steps the oldest becomes the policy.
        """
        self._models = models
        self._every = every
        self._keeping = keeping
        self._steps = 0
        self._versions = [NOWHERE] * len(models)
        # Never used to train: a checkpoint keeps each model with an optimizer, here without state.
        self._untrained = [
            adamw(model.weights().values(), OptimizerSection(), 0.0) for model in models
        ]

    def models(self) -> Mapping[Column, FrozenModel]:
        """Return the opponents by the columns that they compute."""
        order = self._newest_first()
        return {name: self._models[place] for name, place in zip(OPPONENTS, order, strict=False)}

    def step_over(self, version: int, policy: Mapping[str, Tensor]) -> None:
        """Count a step; if it is time, let the oldest opponent become the policy at `version`."""
        self._steps += 1
        if self._steps % self._every == 0:
            oldest = self._newest_first()[-1]
            self._models[oldest].become(policy)
            self._versions[oldest] = version

    def state(self) -> FileParts:
        """Return a host copy of this rank's part of the weights, with versions and step count."""
        files: FileParts = {
            VERSIONS: {
                "steps": part_of(torch.tensor([self._steps])),
                "versions": part_of(torch.tensor(self._versions)),
            }
        }
        for place, (model, untrained) in enumerate(zip(self._models, self._untrained, strict=True)):
            files = {**files, **self._keeping.copied(model.module, untrained, _prefix(place))}
        return files

    def load(self, directory: Path) -> None:
        """Go on from a checkpoint, if it has opponents. Raise `ModelUnusable`."""
        if not (directory / VERSIONS).exists():
            return
        try:
            saved = load_file(directory / VERSIONS)
            versions = saved["versions"].tolist()
            steps = int(saved["steps"].item())
        except (OSError, KeyError, SafetensorError) as error:
            raise ModelUnusable(str(directory), f"{VERSIONS} cannot be read: {error}") from error
        if len(versions) != len(self._models):
            reason = f"it has {len(versions)} opponents: set trainer.pairs.opponents.most so"
            raise ModelUnusable(str(directory), reason)
        for place, (model, untrained) in enumerate(zip(self._models, self._untrained, strict=True)):
            self._keeping.load(directory, model.module, untrained, _prefix(place))
        self._versions = versions
        self._steps = steps

    def _newest_first(self) -> list[int]:
        """Return the opponents' places, the newest version's first."""
        places = range(len(self._models))
        return sorted(places, key=lambda place: self._versions[place], reverse=True)


def _prefix(place: int) -> str:
    """Return the prefix for an opponent's files."""
    return f"{OPPONENT}{place + 1}-"
