"""One transfer of bytes from a training process to rollout processes, over gloo.

Each transfer has its own group, with the sender's store on a free port. The group ends with the
transfer. So a process that ends or stands still costs only that transfer. Needs torch.
"""

from datetime import timedelta
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import distributed
from torch.distributed import TCPStore  # type: ignore[attr-defined]

from seamlessflow.infra.weights.from_trainer.questions import Piece

STILL = timedelta(seconds=10)
"""Limit for the processes to find each other, and for any piece.

gloo does not always notice that a process was killed in the middle of a piece.
"""


class Transfer:
    """A rank of the transfer: 0 sends, all others receive."""

    def __init__(self, store: TCPStore, rank: int, ranks: int, here: str) -> None:
        """Wait for all ranks; `here` is this side's address. Raises `RuntimeError`."""
        gloo: Any = distributed.ProcessGroupGloo  # its stub has no methods
        options = gloo._Options()
        # By itself gloo listens on the address of the host's name.
        options._devices = [gloo.create_device(hostname=here)]
        options._timeout = STILL
        self._group = gloo(store, rank, ranks, options)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Leave the group; otherwise an error in flight would keep its connections."""
        del self._group

    def send(self, directory: Path, piece: Piece) -> None:
        """Send a piece of a file to all others. Raises `RuntimeError`."""
        # `c`: torch takes no array that is read-only; nothing is written.
        self._broadcast(np.memmap(directory / piece.file, np.uint8, mode="c"), piece)

    def receive(self, directory: Path, piece: Piece) -> None:
        """Write an arriving piece to its place in a file, which has its length already."""
        self._broadcast(np.memmap(directory / piece.file, np.uint8, mode="r+"), piece)

    def _broadcast(self, mapped: "np.memmap[tuple[int], np.dtype[np.uint8]]", piece: Piece) -> None:
        options = distributed.BroadcastOptions()
        options.rootRank = options.rootTensor = 0
        bytes_of = torch.from_numpy(mapped[piece.start : piece.end])
        self._group.broadcast([bytes_of], options).wait(STILL)
