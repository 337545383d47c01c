"""The back end for a gang that divides the model with Megatron-core: tensor and data parallel.

The gang, its messages, losses and metrics come from `RankBackend`. The model and the gradients' sum
differ, and ranks that share a model train the same share. Checkpoints are whole tensors by Hugging
Face's names; each rank copies, writes and reads its parts. The other back ends write the same. So
any back end can go on from a checkpoint, with any number of ranks. (Megatron-core's own format has
a pickle in it.)
"""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from pathlib import Path
from typing import cast

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from transformers import PreTrainedModel

from seamlessflow.trainer.backends.backend import StepInput
from seamlessflow.trainer.backends.megatron.leaves import Leaf
from seamlessflow.trainer.backends.megatron.library import RankGroups
from seamlessflow.trainer.backends.megatron.sharded_model import ShardedModel
from seamlessflow.trainer.backends.model import DTYPES
from seamlessflow.trainer.backends.optimizer_state import OPTIMIZER, WEIGHTS, Keeping, SavedState
from seamlessflow.trainer.backends.rank_backend import RankBackend
from seamlessflow.trainer.backends.sharded.parts import FileParts, TensorPart, TensorParts, part_of
from seamlessflow.trainer.backends.token_sums import TokenSums

_MOMENTS = ("exp_avg", "exp_avg_sq")
_STEP = "step"


class ShardKeeping(Keeping):
    """State and gradients of trained models (policy and critic), each a `ShardedModel`."""

    def __init__(self, groups: RankGroups, ranks: int, clip_norm: float) -> None:
        """`ranks`: the gang's rank count, by which each rank has multiplied its loss."""
        super().__init__(clip_norm)
        self._groups = groups
        self._ranks = ranks

    def copied(self, model: nn.Module, optimizer: Optimizer, prefix: str = "") -> FileParts:
        sharded = cast(ShardedModel, model)
        parameters = dict(model.named_parameters())
        moments = dict[str, TensorPart]()
        states = {name: optimizer.state.get(parameter) for name, parameter in parameters.items()}
        for moment in _MOMENTS:
            shards = {name: state[moment] for name, state in states.items() if state}
            moments |= {f"{moment}/{name}": part for name, part in _copied(sharded, shards).items()}
        for leaf in sharded.leaves:
            if state := states[leaf.name]:
                step = part_of(state[_STEP]).copied()
                moments |= {f"{_STEP}/{name}": step for name in leaf.sources}
        weights = _copied(sharded, parameters)
        return {f"{prefix}{WEIGHTS}": weights, f"{prefix}{OPTIMIZER}": moments}

    def load(
        self, directory: Path, model: nn.Module, optimizer: Optimizer, prefix: str = ""
    ) -> None:
        sharded = cast(ShardedModel, model)
        parameters = dict(model.named_parameters())
        saved = SavedState(directory, sharded.whole_names, prefix)
        sharded.read(parameters, saved.read_weight)
        optimizer.state.clear()
        for moment in _MOMENTS if saved.moments else ():
            shards = {name: torch.zeros_like(parameter) for name, parameter in parameters.items()}

            def read(name: str, part: TensorPart, moment: str = moment) -> None:
                saved.read_moment(f"{moment}/{name}", part)

            sharded.read(shards, read)
            for name, shard in shards.items():
                optimizer.state[parameters[name]][moment] = shard
        for leaf in sharded.leaves if saved.moments else ():
            step = torch.zeros(())
            saved.read_moment(f"{_STEP}/{leaf.sources[0]}", part_of(step))
            optimizer.state[parameters[leaf.name]][_STEP] = step

    def clipped(self, model: nn.Module, scale: float = 1.0) -> float:
        """Sum gradients over the ranks, undo the loss's factors, and clip; return the norm before.

        All ranks must call it.
        """
        parameters = dict(model.named_parameters())
        device = next(iter(parameters.values())).device
        squares = torch.zeros(2, dtype=torch.float64, device=device)
        for leaf in cast(ShardedModel, model).leaves:
            gradient = _gradient(parameters[leaf.name])
            self.summed(leaf, gradient).div_(self._ranks * scale)
            squares[int(leaf.divided)] += gradient.double().square().sum()
        self._groups.sum_model(squares[1:])
        norm = squares.sum().sqrt().float()
        torch.nn.utils.clip_grads_with_norm_(parameters.values(), self._clip_norm, norm)
        return float(norm)

    def summed(self, leaf: Leaf, gradient: Tensor) -> Tensor:
        """Replace a shard's gradient by its sum over the ranks; return it."""
        summed = gradient.float()  # the gradient itself, if weights are kept in float32
        if leaf.partial:
            self._groups.sum_model(summed)
        return gradient.copy_(self._groups.sum_data(summed))


class MegatronBackend(RankBackend):
    """A `Backend` (see `backend.py`) on every rank of a gang."""

    _model: ShardedModel

    def gradients(self, step: StepInput) -> Iterator[Mapping[str, Tensor]]:
        """Yield gradients as whole Hugging Face tensors. All ranks must call it."""
        for shards in super().gradients(step):
            for leaf in self._model.leaves:
                self._keeping.summed(leaf, shards[leaf.name]).div_(self._ranks)
            yield self._model.whole_tensors(shards)

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

    @cached_property
    def _keeping(self) -> ShardKeeping:
        return ShardKeeping(self._groups, self._ranks, self._settings.optimizer.clip_norm)

    def _placed(self, model: PreTrainedModel) -> PreTrainedModel:
        return ShardedModel(model, self._groups, DTYPES[self._settings.compute])

    @property
    def _published(self) -> PreTrainedModel:
        return self._model.unsharded()

    def _model_parts(self) -> TensorParts:
        return self._model.parts(self._parameters)

    def _whole_weights(self) -> dict[str, Tensor]:
        return {
            name: tensor.cpu()
            for name, tensor in self._model.whole_tensors(self._parameters).items()
        }

    def _summed(self, values: Tensor) -> Tensor:
        return self._groups.sum_data(values)  # ranks that share a model have the same values

    def _autocast(self) -> AbstractContextManager[object]:
        return nullcontext()  # the model itself computes in the settings' type

    def _merged(self, sums: TokenSums) -> TokenSums:
        # Ranks that share a model have the same sums.
        self._computing(False)
        merged = sums.merged(self._groups.sum_data, self._groups.largest_data)
        self._computing(True)
        return merged


def _copied(model: ShardedModel, shards: Mapping[str, Tensor]) -> dict[str, TensorPart]:
    return {name: part.copied() for name, part in model.parts(shards).items()}


def _gradient(parameter: Tensor) -> Tensor:
    if parameter.grad is None:
        parameter.grad = torch.zeros_like(parameter)
    return parameter.grad
