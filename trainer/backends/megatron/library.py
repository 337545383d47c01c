"""Megatron-core as this back end uses it: its names, and a rank's groups.

No other file imports that library. Without Transformer Engine and Apex its import warns about
slower paths, none of which is taken here.
"""

import os
import warnings

import torch
import torch.distributed as dist
from torch import Tensor

# Sums over ranks start before the products that they should overlap with. With more than one queue
# a device may run them in another order. Read when a process first uses CUDA.
os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "1")

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from megatron.core import parallel_state
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.tensor_parallel.layers import ColumnParallelLinear, VocabParallelEmbedding
    from megatron.core.transformer.transformer_block import TransformerBlock
    from megatron.core.transformer.transformer_config import TransformerConfig

__all__ = [
    "ColumnParallelLinear",
    "TransformerBlock",
    "TransformerConfig",
    "VocabParallelEmbedding",
    "get_gpt_layer_local_spec",
    "parallel_state",
]


class RankGroups:
    """This process's two groups, also for Megatron-core.

    A process has one such object at a time. Consecutive ranks share a model (tensor parallel).
    Ranks with the same part of a model train different tokens (data parallel).
    """

    def __init__(self, tensor_parallel: int) -> None:
        """Make the groups. All ranks must call it, once their process group is there."""
        parallel_state.initialize_model_parallel(tensor_model_parallel_size=tensor_parallel)
        self.size = tensor_parallel
        self.place: int = parallel_state.get_tensor_model_parallel_rank()
        """Number of this rank's shard in the model."""
        self.copy: int = parallel_state.get_data_parallel_rank()
        """This rank's number among those with the same shard."""
        self.tensor: dist.ProcessGroup = parallel_state.get_tensor_model_parallel_group()
        self._data: dist.ProcessGroup = parallel_state.get_data_parallel_group()

    def shards(self, tensor: Tensor) -> list[Tensor]:
        """Return the shards on all ranks that share the model."""
        gathered = [torch.empty_like(tensor) for _ in range(self.size)]
        dist.all_gather(gathered, tensor.contiguous(), group=self.tensor)
        return gathered

    def sum_model(self, tensor: Tensor) -> None:
        """Replace a tensor by its sum over the model's ranks."""
        dist.all_reduce(tensor, group=self.tensor)

    def sum_data(self, tensor: Tensor) -> Tensor:
        """Replace a tensor by its sum over the ranks with other tokens; return it."""
        dist.all_reduce(tensor, group=self._data)
        return tensor

    def largest_data(self, tensor: Tensor) -> Tensor:
        """Replace a tensor by its maximum over the ranks with other tokens; return it."""
        dist.all_reduce(tensor, dist.ReduceOp.MAX, group=self._data)
        return tensor

    def close(self) -> None:
        """Forget the groups."""
        parallel_state.destroy_model_parallel()
