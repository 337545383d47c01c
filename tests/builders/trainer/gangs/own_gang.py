"""Gangs of ranks on this machine."""

import gc

import torch.distributed as dist

from seamlessflow.trainer.backends.megatron.library import parallel_state


def leave_gang() -> None:
    """Leave the gang that this process is in, if any, also one that a back end failed in."""
    if dist.is_initialized():
        parallel_state.destroy_model_parallel()
        dist.destroy_process_group()
        # A back end refers to itself, and so has its groups until it is collected. Megatron's have
        # 50 threads, each of which wakes up a hundred times a second.
        gc.collect()
