"""The back end of a gang that divides the model by Megatron-core: tensor parallel by data parallel.

The gang, its messages, losses and metrics are those of `FsdpBackend`; what differs is the model,
how gradients are summed, and that ranks of one model train the same share. Checkpoints are whole
tensors by Hugging Face's names, as the other back ends write them, so any of these can go on from
one, with another number of ranks too. (Megatron-core's own format has a pickle in it.)
"""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor
from transformers import PreTrainedModel

from trainer.backends.backend import StepInput
from trainer.backends.failures import GradientNorms
from trainer.backends.fsdp_backend import FsdpBackend
from trainer.backends.megatron.leaves import Leaf
from trainer.backends.megatron.rank_groups import RankGroups
from trainer.backends.megatron.sharded_model import ShardedModel
from trainer.backends.model import DTYPES
from trainer.backends.optimizer_state import OPTIMIZER, WEIGHTS, SavedState, random_state
from trainer.backends.sharded.parts import Files, Parts, TensorPart, part_of
from trainer.backends.token_sums import TokenSums

MOMENTS = ("exp_avg", "exp_avg_sq")
STEP = "step"


class MegatronBackend(FsdpBackend):
    """A `Backend` (see `backend.py`) on every rank of a gang."""

    _model: ShardedModel

    def gradients(self, step: StepInput) -> Iterator[Mapping[str, Tensor]]:
        """Yield gradients of whole Hugging Face tensors. All ranks must call it."""
        for shards in super().gradients(step):
            for leaf in self._model.leaves:
                self._sum(leaf, shards[leaf.name]).div_(self._ranks)
            yield self._model.whole_tensors(shards)

    def state(self) -> Files:
        """Return a copy of this rank's part of weights and optimizer, and of the random state."""
        weights, moments = self._copied(self._parameters), dict[str, TensorPart]()
        states = {name: self._optimizer.state.get(of) for name, of in self._parameters.items()}
        for moment in MOMENTS:
            shards = {name: state[moment] for name, state in states.items() if state}
            moments |= {f"{moment}/{name}": of for name, of in self._copied(shards).items()}
        for leaf in self._model.leaves:
            if state := states[leaf.name]:
                step = part_of(state[STEP]).copied()
                moments |= {f"{STEP}/{name}": step for name in leaf.sources}
        return {WEIGHTS: weights, OPTIMIZER: moments, **random_state()}

    def close(self) -> None:
        """Leave the gang."""
        self._groups.close()
        super().close()

    @property
    def _copies(self) -> int:
        return self._settings.megatron.tensor_parallel

    @cached_property
    def _groups(self) -> RankGroups:
        return RankGroups(self._copies)

    def _placed(self, model: PreTrainedModel) -> PreTrainedModel:
        return ShardedModel(model, self._groups, DTYPES[self._settings.compute])

    def _load_state(self, directory: Path) -> None:
        saved, parameters = SavedState(directory, self._model.whole_names), self._parameters
        self._model.read(parameters, saved.read_weight)
        self._optimizer.state.clear()
        for moment in MOMENTS if saved.moments else ():
            shards = {name: torch.zeros_like(of) for name, of in parameters.items()}

            def read(name: str, part: TensorPart, moment: str = moment) -> None:
                saved.read_moment(f"{moment}/{name}", part)

            self._model.read(shards, read)
            for name, shard in shards.items():
                self._optimizer.state[parameters[name]][moment] = shard
        for leaf in self._model.leaves if saved.moments else ():
            step = torch.zeros(())
            saved.read_moment(f"{STEP}/{leaf.sources[0]}", part_of(step))
            self._optimizer.state[parameters[leaf.name]][STEP] = step

    def _copied(self, shards: Mapping[str, Tensor]) -> dict[str, TensorPart]:
        return {name: part.copied() for name, part in self._model.parts(shards).items()}

    @property
    def _published(self) -> PreTrainedModel:
        return self._model.unsharded()

    def _model_parts(self) -> Parts:
        return self._model.parts(self._parameters)

    def _whole_weights(self) -> dict[str, Tensor]:
        return {name: of.cpu() for name, of in self._model.whole_tensors(self._parameters).items()}

    def _clipped(self, scale: float) -> GradientNorms:
        """Sum the gradients over the ranks, undo the factor of the loss, and clip them."""
        squares = torch.zeros(2, dtype=torch.float64, device=self._model.device)
        for leaf in self._model.leaves:
            gradient = self._gradient(self._parameters[leaf.name])
            self._sum(leaf, gradient).div_(self._ranks * scale)
            squares[int(leaf.divided)] += gradient.double().square().sum()
        self._groups.sum_model(squares[1:])
        norm = squares.sum().sqrt().float()
        clip = self._settings.optimizer.clip_norm
        torch.nn.utils.clip_grads_with_norm_(self._parameters.values(), clip, norm)
        return GradientNorms(float(norm))

    def _sum(self, leaf: Leaf, gradient: Tensor) -> Tensor:
        """Replace the gradient of a shard by its sum over the ranks; return it."""
        summed = gradient.float()  # the gradient itself, unless weights are kept in less
        if leaf.partial:
            self._groups.sum_model(summed)
        return gradient.copy_(self._groups.sum_data(summed))

    def _gradient(self, parameter: Tensor) -> Tensor:
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        return parameter.grad

    def _autocast(self) -> AbstractContextManager[object]:
        return nullcontext()  # the model itself computes in the settings' type

    def _merged(self, sums: TokenSums) -> TokenSums:
        # Ranks of one model have the same sums.
        self._computing(False)
        merged = sums.merged(self._groups.sum_data, self._groups.largest_data)
        self._computing(True)
        return merged
