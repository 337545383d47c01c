"""The ranks that train together: their process group, and the leader's messages to the others.

Rank 0 leads: it alone reads sessions, commits steps and writes files. The others wait in
`receive`. A message is a number and named arrays in safetensors form (no pickle), sent over gloo;
tensors of the model go the way FSDP2 sends them. A rank that dies breaks the group: every other one
ends with an error at its next exchange, and all start again.
"""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from enum import IntEnum

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from safetensors.numpy import load, save
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

Arrays = Mapping[str, NDArray[np.generic]]

JOIN_TIMEOUT = timedelta(minutes=10)
"""Limit for the ranks to find each other, and for any exchange between them."""


class Op(IntEnum):
    """The call that the leader asks the other ranks to make."""

    REST = 0
    LOAD = 1
    TRAIN = 2
    REMEMBER = 3
    WRITE = 4
    SNAPSHOT = 5
    ANNOTATE = 6


class GangRank:
    """This process's place in the gang."""

    def __init__(self, rank: int, ranks: int, rendezvous: str, device: torch.device) -> None:
        """Wait for all ranks at `rendezvous` (host:port, where rank 0 listens)."""
        self.rank = rank
        self.ranks = ranks
        if device.type == "cuda":
            torch.cuda.set_device(device)
        # Messages are tensors on the host, so gloo is needed beside nccl.
        backends = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
        dist.init_process_group(
            backends,
            init_method=f"tcp://{rendezvous}",
            rank=rank,
            world_size=ranks,
            timeout=JOIN_TIMEOUT,
        )
        self.mesh: DeviceMesh = init_device_mesh(device.type, (ranks,))

    @property
    def leads(self) -> bool:
        """Return whether this is rank 0."""
        return self.rank == 0

    def send(self, op: Op, messages: Sequence[Arrays]) -> None:
        """Send a call to every other rank; `messages` has one for each. For the leader."""
        # The length goes first: gloo receives into a tensor of known size.
        for rank, arrays in enumerate(messages, 1):
            _send(rank, op, arrays)

    def receive(self) -> tuple[Op, Arrays]:
        """Wait for the leader's next call. For the other ranks."""
        return _received(0)

    def answer(self, arrays: Arrays) -> None:
        """Answer a call of the leader with arrays. For the other ranks."""
        _send(0, Op.ANNOTATE, arrays)

    def answers(self) -> list[Arrays]:
        """Wait for the answer of every other rank. For the leader."""
        return [_received(rank)[1] for rank in range(1, self.ranks)]

    def summed(self, values: Tensor) -> Tensor:
        """Return the sum over all ranks of a tensor on the host. All ranks must call it."""
        dist.all_reduce(values)
        return values

    def largest(self, values: Tensor) -> Tensor:
        """Return the maximum over all ranks. All ranks must call it."""
        dist.all_reduce(values, dist.ReduceOp.MAX)
        return values

    def close(self) -> None:
        """Leave the process group."""
        dist.destroy_process_group()


def _send(rank: int, op: Op, arrays: Arrays) -> None:
    body = save({name: np.ascontiguousarray(of) for name, of in arrays.items()})
    dist.send(torch.tensor([op, len(body)]), rank)
    dist.send(torch.frombuffer(bytearray(body), dtype=torch.uint8), rank)


def _received(rank: int) -> tuple[Op, Arrays]:
    header = torch.zeros(2, dtype=torch.int64)
    dist.recv(header, rank)
    body = torch.zeros(int(header[1]), dtype=torch.uint8)
    dist.recv(body, rank)
    return Op(int(header[0])), load(body.numpy().tobytes())
