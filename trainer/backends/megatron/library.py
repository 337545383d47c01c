"""The names of Megatron-core that this back end uses. No other file imports that library.

Without Transformer Engine and Apex its import warns of slower paths, none of which is taken here.
"""

import os
import warnings

# Sums over ranks are started before the products that they should overlap with: a device then
# needs one queue, or may run them in another order. Read when a process first uses CUDA.
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
