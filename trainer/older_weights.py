"""Weights of the last few versions on the host, to compare the engine with the trainer fairly.

A trained token was often sampled under weights that have been trained since. What the engine got
wrong shows only under those very weights; everything else is staleness. Called by the back ends.
"""

from collections import OrderedDict
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from trainer.forward import Forward
from trainer.packing import MicroBatch
from trainer.token_sums import TokenSums


class OlderWeights:
    """The newest versions, as many as are asked for and fit into the memory allowed."""

    def __init__(self, count: int, limit_bytes: int) -> None:
        self._count = count
        self._limit_bytes = limit_bytes
        self._kept: OrderedDict[int, dict[str, Tensor]] = OrderedDict()

    def remember(self, version: int, weights: Mapping[str, Tensor]) -> None:
        """Copies the weights of a version; forgets the oldest one."""
        size = sum(tensor.numel() * tensor.element_size() for tensor in weights.values())
        fit = min(self._count, self._limit_bytes // max(size, 1))
        while self._kept and len(self._kept) >= fit:
            self._kept.popitem(last=False)
        if fit:
            copies = {name: tensor.detach().cpu().clone() for name, tensor in weights.items()}
            self._kept[version] = copies

    def versions(self) -> Sequence[int]:
        """Those that are there, oldest first."""
        return tuple(self._kept)

    @torch.no_grad()
    def measure(
        self, forward: Forward, samples: Sequence[MicroBatch], sums: TokenSums, device: torch.device
    ) -> None:
        """Adds the mismatch of the samples' tokens whose version is there."""
        for version, weights in self._kept.items():
            there = {name: tensor.to(device) for name, tensor in weights.items()}
            for batch in samples:
                of_version_N = torch.from_numpy(batch.versions_N == version)
                if of_version_N.any():
                    logprobs_N, _ = forward(batch, there)
                    engine_N = torch.from_numpy(batch.logprobs_N)
                    sums.add_mismatch((logprobs_N.cpu() - engine_N)[of_version_N])
