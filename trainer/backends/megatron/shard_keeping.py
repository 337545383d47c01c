"""Trained models of which ranks have shards: sums and norms of gradients, and a checkpoint's parts.

A checkpoint has whole Hugging Face tensors, of which each rank copies, writes and reads its parts.
Called by the back end, for the policy and for a critic.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import cast

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from seamlessflow.trainer.backends.megatron.leaves import Leaf
from seamlessflow.trainer.backends.megatron.rank_groups import RankGroups
from seamlessflow.trainer.backends.megatron.sharded_model import ShardedModel
from seamlessflow.trainer.backends.optimizer_state import OPTIMIZER, WEIGHTS, Keeping, SavedState
from seamlessflow.trainer.backends.sharded.parts import Files, TensorPart, part_of

MOMENTS = ("exp_avg", "exp_avg_sq")
STEP = "step"


class ShardKeeping(Keeping):
    """Models that are all of `ShardedModel`."""

    def __init__(self, groups: RankGroups, ranks: int, clip_norm: float) -> None:
        """`ranks`: all of the gang, with whose number each has multiplied its loss."""
        super().__init__(clip_norm)
        self._groups, self._ranks = groups, ranks

    def copied(self, model: nn.Module, optimizer: Optimizer, prefix: str = "") -> Files:
        sharded, parameters = cast(ShardedModel, model), dict(model.named_parameters())
        moments = dict[str, TensorPart]()
        states = {name: optimizer.state.get(parameter) for name, parameter in parameters.items()}
        for moment in MOMENTS:
            shards = {name: state[moment] for name, state in states.items() if state}
            moments |= {f"{moment}/{name}": part for name, part in _copied(sharded, shards).items()}
        for leaf in sharded.leaves:
            if state := states[leaf.name]:
                step = part_of(state[STEP]).copied()
                moments |= {f"{STEP}/{name}": step for name in leaf.sources}
        weights = _copied(sharded, parameters)
        return {f"{prefix}{WEIGHTS}": weights, f"{prefix}{OPTIMIZER}": moments}

    def load(
        self, directory: Path, model: nn.Module, optimizer: Optimizer, prefix: str = ""
    ) -> None:
        sharded, parameters = cast(ShardedModel, model), dict(model.named_parameters())
        saved = SavedState(directory, sharded.whole_names, prefix)
        sharded.read(parameters, saved.read_weight)
        optimizer.state.clear()
        for moment in MOMENTS if saved.moments else ():
            shards = {name: torch.zeros_like(parameter) for name, parameter in parameters.items()}

            def read(name: str, part: TensorPart, moment: str = moment) -> None:
                saved.read_moment(f"{moment}/{name}", part)

            sharded.read(shards, read)
            for name, shard in shards.items():
                optimizer.state[parameters[name]][moment] = shard
        for leaf in sharded.leaves if saved.moments else ():
            step = torch.zeros(())
            saved.read_moment(f"{STEP}/{leaf.sources[0]}", part_of(step))
            optimizer.state[parameters[leaf.name]][STEP] = step

    def clipped(self, model: nn.Module, scale: float = 1.0) -> float:
        """Sum the gradients over the ranks, undo the factors of the loss, and clip them.

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
        """Replace the gradient of a shard by its sum over the ranks; return it."""
        summed = gradient.float()  # the gradient itself, unless weights are kept in less
        if leaf.partial:
            self._groups.sum_model(summed)
        return gradient.copy_(self._groups.sum_data(summed))


def _copied(model: ShardedModel, shards: Mapping[str, Tensor]) -> dict[str, TensorPart]:
    return {name: part.copied() for name, part in model.parts(shards).items()}


def _gradient(parameter: Tensor) -> Tensor:
    if parameter.grad is None:
        parameter.grad = torch.zeros_like(parameter)
    return parameter.grad
