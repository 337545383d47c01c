"""Models that no gradient trains: their log-probs of tokens, for a reference or a teacher.

On the host but for the time in which they compute. Called by the back ends.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import PreTrainedModel

from seamlessflow.trainer.backends.forward import Forward
from seamlessflow.trainer.backends.kept_copies import forget_copies
from seamlessflow.trainer.backends.model import load_model
from seamlessflow.trainer.data.packing import MicroBatch
from seamlessflow.trainer.parallelism import Dtype

Placed = Callable[[PreTrainedModel], PreTrainedModel]
"""Returns a model as the back end keeps models: sharded, if it shards them."""


class FrozenModel:
    """A model as it is in its directory, until it becomes another one."""

    def __init__(
        self, directory: Path, dtype: Dtype, placed: Placed, empty: bool, renewed: bool = False
    ) -> None:
        """`empty` as for `load_model`; one to be `renewed` is kept as trained ones are.

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
        """Take over the weights of another model of the same shape, in its own type."""
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
        """Return the log-probs of the trained tokens (N) of each micro-batch."""
        home = self._model.device
        nn.Module.to(self._model, device)
        with autocast():
            logprobs = [self._forward(batch)[0].float().cpu().numpy() for batch in batches]
        nn.Module.to(self._model, home)
        return logprobs
