"""A worker's further ranks: a process for each device but the first, without Kafka.

The first rank orders them over a socket to take or give back memory, and to follow a step. Their
work comes through torch's process group. If one ends, the worker's training process ends too.
"""

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from queue import Empty, Queue
from typing import Literal

from seamlessflow.infra.errors import SeamlessFlowError
from seamlessflow.trainer.backends.backend import LocalBackend, UpdateFailed

Order = Literal["follow", "acquire", "release"]
_MOVE_S = 600.0
_STEP_S = 6 * 3600.0
_END_S = 10.0
_NOTICE_S = 2.0
"""Time to notice a rank's end, after this rank failed because of it."""


class RankLost(SeamlessFlowError):
    """One of the worker's ranks ended."""

    lasting = False

    def __init__(self, rank: int) -> None:
        self.rank = rank
        super().__init__(f"rank {rank} of this worker ended; all ranks start again")


class FurtherRank:
    """The process for one further device."""

    def __init__(
        self, rank: int, device: str, place: str, lost: Callable[[BaseException], None]
    ) -> None:
        """Start the process, which meets its gang at `place`.

        A thread calls `lost` if the process ends before `close`.
        """
        self._rank = rank
        self._lost = lost
        self._closing = False
        self._answers: Queue[int | None] = Queue()
        self._socket, other = socket.socketpair()
        variables = {
            "SEAMLESSFLOW_TRAINER__RANK": str(rank),
            "SEAMLESSFLOW_TRAINER__DEVICE": device,
            # It has one device, however many its worker has.
            "SEAMLESSFLOW_TRAINER__DEVICES": "[]",
        }
        with other:
            self._process = subprocess.Popen(  # nosec B603 # our own module
                [
                    sys.executable,
                    "-P",
                    "-m",
                    "seamlessflow.trainer.ranks.follower",
                    str(other.fileno()),
                    place,
                ],
                env=os.environ | variables,
                pass_fds=[other.fileno()],
            )
        self._lines = self._socket.makefile("r")
        threading.Thread(target=self._read, name=f"rank {rank}", daemon=True).start()

    def order(self, order: Order) -> None:
        """Give an order. Raises `RankLost`."""
        try:
            self._socket.sendall(f"{order}\n".encode())
        except OSError as error:
            raise RankLost(self._rank) from error

    def answer(self, limit_s: float) -> int:
        """Wait until the last order is carried out; after a release return the device's free bytes.

        Raises `RankLost`.
        """
        try:
            answer = self._answers.get(timeout=limit_s)
        except Empty as error:
            raise RankLost(self._rank) from error
        if answer is None:
            raise RankLost(self._rank)
        return answer

    def close(self) -> None:
        """Let the process end, by force after a while."""
        self._closing = True
        self._socket.shutdown(socket.SHUT_RDWR)
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._lines.close()
        self._socket.close()

    def _read(self) -> None:
        try:
            for line in self._lines:
                self._answers.put(int(line))
        except (OSError, ValueError):
            pass  # as if the process had ended
        self._answers.put(None)
        if not self._closing:
            self._lost(RankLost(self._rank))


class WorkerDevices:
    """All devices of a worker: this process's, and those of its further ranks."""

    def __init__(
        self,
        rank: int,
        further: Sequence[str],
        place: str,
        first: Callable[[], LocalBackend],
        lost: Callable[[BaseException], None],
    ) -> None:
        """Start a rank on each `further` device, then make the first rank, number `rank`.

        The first rank may wait for the others. The gang meets at `place`.
        """
        self._losses: Queue[BaseException] = Queue()

        def note(error: BaseException) -> None:
            self._losses.put(error)
            lost(error)

        self._further = [
            FurtherRank(number, device, place, note)
            for number, device in enumerate(further, rank + 1)
        ]
        self.backend = first()

    def acquire(self) -> None:
        """Move weights and optimizer to all devices. Raises `RankLost`."""
        self._ask("acquire", self.backend.acquire)

    def release(self) -> int:
        """Move weights and optimizer to the host; return a lower bound on a device's free bytes."""
        return min(self._ask("release", self.backend.release))

    @contextmanager
    def following(self) -> Iterator[None]:
        """Let the further ranks take part in the body's work until the trainer rests."""
        for rank in self._further:
            rank.order("follow")
        with self._whole():
            yield
        for rank in self._further:
            rank.answer(_STEP_S)

    def close(self) -> None:
        """End the further ranks, and interrupt the first rank if it waits."""
        self.backend.interrupt()
        for rank in self._further:
            rank.close()

    @contextmanager
    def _whole(self) -> Iterator[None]:
        """Raise `RankLost` instead of torch's error if a further rank ended."""
        try:
            yield
        except SeamlessFlowError:
            raise
        except Exception as error:
            with suppress(Empty):
                raise self._losses.get(timeout=_NOTICE_S) from error
            raise

    def _ask(self, order: Order, carry_out: Callable[[], int | None]) -> list[int]:
        for rank in self._further:
            rank.order(order)
        with self._whole():
            answer = carry_out() or 0
        return [answer, *(rank.answer(_MOVE_S) for rank in self._further)]


def follow_orders(backend: LocalBackend, connection: socket.socket) -> None:
    """Do what the worker's first rank orders, until it closes the connection."""
    with connection, connection.makefile("r") as orders:
        for order in orders:
            answer = 0
            match order.strip():
                case "follow":
                    try:
                        backend.follow()
                    except UpdateFailed:
                        # All ranks have failed alike; the first one says so and closes this.
                        continue
                case "acquire":
                    backend.acquire()
                case "release":
                    answer = backend.release()
            connection.sendall(f"{answer}\n".encode())
        backend.interrupt()
