"""Host copies of the last few versions' weights, to compare engine and trainer fairly.

A trained token was often sampled under weights that have been trained since. A difference in
log-probs is the engine's error only under the same weights; otherwise it is mostly staleness.
Called by the back ends.
"""

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from seamlessflow.trainer.backends.forward import Forward
from seamlessflow.trainer.backends.model import forget_copies
from seamlessflow.trainer.backends.token_sums import TokenSums
from seamlessflow.trainer.data.packing import MicroBatch

NamedTensors = Mapping[str, Tensor]


class OlderWeights:
    """The newest versions: up to `count` that fit into `limit_bytes`."""

    def __init__(self, model: nn.Module, count: int, limit_bytes: int) -> None:
        self._model = model
        self._count = count
        self._limit_bytes = limit_bytes
        self._kept: OrderedDict[int, NamedTensors] = OrderedDict()

    def remember(self, version: int, weights: NamedTensors) -> None:
        """Keep a copy of a version's weights; drop the oldest ones to make room."""
        size = sum(tensor.numel() * tensor.element_size() for tensor in weights.values())
        fit = min(self._count, self._limit_bytes // max(size, 1))
        while self._kept and len(self._kept) >= fit:
            self._kept.popitem(last=False)
        if fit:
            self._kept[version] = _copied(weights)

    def versions(self) -> Sequence[int]:
        """Return the versions that have a copy, oldest first."""
        return tuple(self._kept)

    @torch.no_grad()
    def measure(self, forward: Forward, samples: Sequence[MicroBatch], sums: TokenSums) -> None:
        """Add the mismatch at all sampled tokens whose version has a copy."""
        for version, weights in self._kept.items():
            batches = [batch for batch in samples if (batch.versions_N == version).any()]
            if batches:
                with self._replaced_weights(weights):
                    for batch in batches:
                        logprobs_N, _ = forward(batch)
                        differences_N = logprobs_N.cpu() - torch.from_numpy(batch.logprobs_N)
                        sums.add_mismatch(differences_N[batch.versions_N == version])

    @contextmanager
    def _replaced_weights(self, weights: NamedTensors) -> Iterator[None]:
        """Put other weights into the model for the body, then its own back."""
        parameters = dict(self._model.named_parameters())
        saved = _copied({name: parameters[name] for name in weights})
        self._put(weights)
        try:
            yield
        finally:
            self._put(saved)

    def _put(self, weights: NamedTensors) -> None:
        forget_copies(self._model)
        parameters = dict(self._model.named_parameters())
        for name, tensor in weights.items():
            parameters[name].copy_(tensor.to(parameters[name].device))


def _copied(weights: NamedTensors) -> NamedTensors:
    return {name: tensor.detach().to("cpu", copy=True) for name, tensor in weights.items()}
