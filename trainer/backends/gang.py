"""The ranks that train together: their process group, and the leader's messages to the others.

The ranks meet first (`meeting.py`). Then they form their group, over a TCP store that rank 0 opens
on a free port. Rank 0 leads: only it gets the trainer's calls. It repeats them to the others, which
wait in `receive`. A message is a call or a reply, like the trainer's (`calls.py`), sent over gloo.
FSDP2 sends the model's tensors itself. A rank that dies breaks the group. Every other rank then
fails at its next exchange, and all start again.
"""

import fcntl
import io
import os
import socket
import struct
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import TCPStore  # type: ignore[attr-defined]
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.distributed_c10d import _set_pg_timeout

from seamlessflow.infra.clock import Stopping, never
from seamlessflow.infra.errors import SeamlessFlowError
from seamlessflow.infra.network.addresses import is_loopback
from seamlessflow.infra.network.line import Line
from seamlessflow.infra.network.store import store_at, store_of
from seamlessflow.trainer.backends.calls import (
    Arrays,
    GangCall,
    GangMessage,
    Reply,
    encoded,
    received,
)
from seamlessflow.trainer.backends.meeting import Meeting, begun

EXCHANGE_LIMIT = timedelta(minutes=10)
"""Limit for any exchange between ranks."""
_FORM_LIMIT = timedelta(minutes=1)
"""Time for ranks that have met to form their process group; a rank's end is noticed only after
it."""
_NOTICE_S = 2.0
"""Time to notice a rank's end on its line, after an exchange with it failed."""
_ADDRESS_OF = 0x8915
"""Number of Linux's request for an interface's address (SIOCGIFADDR)."""
_INTERFACES = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")


class RankEnded(SeamlessFlowError):
    """Another rank's end, which this rank noticed in an exchange."""

    lasting = False

    def __init__(self, rank: int) -> None:
        self.rank = rank
        super().__init__(
            f"rank {rank} of the gang ended; all ranks start again, from the newest checkpoint"
        )


class GangRank:
    """This process's place in the gang."""

    def __init__(
        self,
        rank: int,
        ranks: int,
        way: Meeting | Line,
        device: torch.device,
        stopping: Stopping = never,
    ) -> None:
        """Wait for all ranks: rank 0 at its meeting, any other on its line to rank 0.

        Raises `WorkersAbsent` and `LineLost`, at once when `stopping`, and `RankEnded`.
        """
        self.rank = rank
        self.ranks = ranks
        if device.type == "cuda" and device.index is not None:
            torch.cuda.set_device(device)
        # Messages are tensors on the host, so gloo is needed beside nccl.
        backends = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
        store, self.lines = _met(way, ranks - 1, stopping)
        """Rank 0's lines to the other ranks, in rank order; any other rank's line to rank 0."""
        try:
            with self.exchange():
                dist.init_process_group(
                    backends, store=store, rank=rank, world_size=ranks, timeout=_FORM_LIMIT
                )
        except BaseException:
            self.close()
            raise
        _set_pg_timeout(EXCHANGE_LIMIT)
        self.mesh: DeviceMesh = init_device_mesh(device.type, (ranks,))

    @property
    def leads(self) -> bool:
        """Return whether this is rank 0."""
        return self.rank == 0

    def send(self, call: GangCall, messages: Sequence[Arrays]) -> None:
        """Send a call to every other rank; `messages` has the arrays for each. For the leader."""
        for rank, arrays in enumerate(messages, 1):
            _send(rank, call, arrays)

    def receive(self) -> tuple[GangCall, Arrays]:
        """Wait for the leader's next call. For the other ranks."""
        call, arrays = _received(0)
        if not isinstance(call, GangCall):
            raise ValueError(f"rank 0 sent no call but {call}")
        return call, arrays

    def reply(self, reply: Reply, arrays: Arrays) -> None:
        """Reply to the leader's call. For the other ranks."""
        _send(0, reply, arrays)

    def replies(self) -> list[tuple[Reply, Arrays]]:
        """Wait for every other rank's reply. For the leader."""
        return [_reply(rank) for rank in range(1, self.ranks)]

    def summed(self, values: Tensor) -> Tensor:
        """Return a host tensor's sum over all ranks. All ranks must call it."""
        dist.all_reduce(values)
        return values

    def largest(self, values: Tensor) -> Tensor:
        """Return a tensor's maximum over all ranks. All ranks must call it."""
        dist.all_reduce(values, dist.ReduceOp.MAX)
        return values

    @contextmanager
    def exchange(self) -> Iterator[None]:
        """Raise `RankEnded` instead of torch's error if another rank ended."""
        try:
            yield
        except RuntimeError as error:
            if (ended := self._ended()) is None:
                raise
            raise RankEnded(ended) from error

    def _ended(self) -> int | None:
        """Return a rank whose line to this one ends now; None if no line ends."""
        ranks = range(1, self.ranks) if self.leads else [0]
        deadline = time.monotonic() + _NOTICE_S
        while time.monotonic() < deadline:
            for rank, line in zip(ranks, self.lines, strict=True):
                if line.ends(_NOTICE_S / 10 / len(self.lines)):
                    return rank
        return None

    def close(self) -> None:
        """Leave the process group, and end the lines."""
        for line in self.lines:
            line.close()
        if dist.is_initialized():
            dist.destroy_process_group()


def _met(way: Meeting | Line, others: int, stopping: Stopping) -> tuple[TCPStore, Sequence[Line]]:
    """Wait for all ranks; return the store with their addresses, and the lines to other ranks."""
    if isinstance(way, Meeting):
        _keep_to(socket.gethostbyname(way.host))
        store, place = store_at(way.host, EXCHANGE_LIMIT)
        return store, way.begin(others, place)
    store = store_of(begun(way, stopping), EXCHANGE_LIMIT)
    _keep_to(way.here)
    return store, [way]


def _keep_to(address: str) -> None:
    """Let the exchange use the network on which the gang meets, unless the environment names one.

    By default gloo takes the address behind the host's name, which is loopback on many hosts.
    """
    if (name := _interface(address)) is not None:
        for variable in _INTERFACES:
            os.environ.setdefault(variable, name)


def _interface(address: str) -> str | None:
    """Return the name of the network interface with an IPv4 address; None if it is not found."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            try:
                asked = fcntl.ioctl(probe, _ADDRESS_OF, struct.pack("256s", name.encode()))
            except OSError:
                continue  # it has no such address
            candidate = socket.inet_ntoa(asked[20:24])
            if candidate == address or (is_loopback(candidate) and is_loopback(address)):
                return name
    return None


def _send(rank: int, message: GangMessage, arrays: Arrays) -> None:
    data = bytearray(encoded(message, arrays))
    # The length goes first: gloo receives into a tensor of known size.
    dist.send(torch.tensor([len(data)]), rank)
    dist.send(torch.frombuffer(data, dtype=torch.uint8), rank)


def _received(rank: int) -> tuple[GangMessage, Arrays]:
    length = torch.zeros(1, dtype=torch.int64)
    dist.recv(length, rank)
    data = torch.zeros(int(length.item()), dtype=torch.uint8)
    dist.recv(data, rank)
    return received(io.BytesIO(data.numpy().tobytes()).read)


def _reply(rank: int) -> tuple[Reply, Arrays]:
    reply, arrays = _received(rank)
    if not isinstance(reply, Reply):
        raise ValueError(f"rank {rank} sent no reply but {reply}")
    return reply, arrays
