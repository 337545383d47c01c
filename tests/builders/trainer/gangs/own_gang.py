"""Gangs of ranks on this machine."""

import torch.distributed as dist

from seamlessflow.trainer.backends.megatron.library import parallel_state


def leave_gang() -> None:
    """Leave the gang that this process is in, if any, also one that a back end failed in."""
    if dist.is_initialized():
        parallel_state.destroy_model_parallel()
        dist.destroy_process_group()
