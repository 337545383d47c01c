"""Copies of weights that computations keep for the next one, which a change makes stale.

Autocast keeps the weights in its own type as long as its outermost context is open, and FSDP2 those
of the root module whole after a forward pass. Called wherever weights are replaced in place.
"""

import torch
from torch import nn
from torch.distributed.fsdp import FSDPModule


def forget_copies(model: nn.Module) -> None:
    """Forget what computations have kept of a model's weights, before they are replaced.

    Sharded parameters are in their place then, so that what is written goes to the shards.
    """
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.reshard()
    torch.clear_autocast_cache()
