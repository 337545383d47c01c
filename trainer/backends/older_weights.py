"""Weights of the last few versions on the host, to compare the engine with the trainer fairly.

A trained token was often sampled under weights that have been trained since. What the engine got
wrong shows only under those very weights; everything else is staleness. Called by the back ends.
"""

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule

from trainer.backends.forward import Forward
from trainer.backends.token_sums import TokenSums
from trainer.data.packing import MicroBatch

Weights = Mapping[str, Tensor]


class OlderWeights:
    """The newest versions, as many as are asked for and fit into the memory allowed."""

    def __init__(self, model: nn.Module, count: int, limit_bytes: int) -> None:
        self._model = model
        self._count = count
        self._limit_bytes = limit_bytes
        self._kept: OrderedDict[int, Weights] = OrderedDict()

    def remember(self, version: int, weights: Weights) -> None:
        """Copies the weights of a version; forgets the oldest one."""
        size = sum(tensor.numel() * tensor.element_size() for tensor in weights.values())
        fit = min(self._count, self._limit_bytes // max(size, 1))
        while self._kept and len(self._kept) >= fit:
            self._kept.popitem(last=False)
        if fit:
            self._kept[version] = _copied(weights)

    def versions(self) -> Sequence[int]:
        """Those that are there, oldest first."""
        return tuple(self._kept)

    @torch.no_grad()
    def measure(self, forward: Forward, samples: Sequence[MicroBatch], sums: TokenSums) -> None:
        """Adds the mismatch of the samples' tokens whose version is there."""
        for version, weights in self._kept.items():
            found = [batch for batch in samples if (batch.versions_N == version).any()]
            if found:
                with self._lent(weights):
                    for batch in found:
                        logprobs_N, _ = forward(batch)
                        differences_N = logprobs_N.cpu() - torch.from_numpy(batch.logprobs_N)
                        sums.add_mismatch(differences_N[batch.versions_N == version])

    @contextmanager
    def _lent(self, weights: Weights) -> Iterator[None]:
        """The model has other weights in the body, and its own again behind it."""
        own = _copied(dict(self._model.named_parameters()))
        self._put(weights)
        try:
            yield
        finally:
            self._put(own)

    def _put(self, weights: Weights) -> None:
        if isinstance(self._model, FSDPModule):
            self._model.reshard()
        for name, parameter in self._model.named_parameters():
            parameter.copy_(weights[name].to(parameter.device))


def _copied(weights: Weights) -> Weights:
    return {name: tensor.detach().cpu().clone() for name, tensor in weights.items()}
