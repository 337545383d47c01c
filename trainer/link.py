"""The trainer's link to its gang: a `Backend` without a device, which calls the gang's first rank.

That rank finds the trainer's address and token in the `TrainerHeartbeat` on `fleet`, and connects.
On both sides a channel carries the messages (`backends/calls.py`). If the connection ends, the
weights in memory are lost. The link then raises `GangBroken`, and the trainer starts again from its
checkpoint.
"""

import hmac
import itertools
import secrets
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from queue import Empty, Queue

from seamlessflow.infra.clock import Stopping
from seamlessflow.infra.errors import SeamlessFlowError
from seamlessflow.infra.network.addresses import address_of, listener_on
from seamlessflow.trainer.backends.backend import NO_STEP, Machine, StepInput, UpdateFailed
from seamlessflow.trainer.backends.calls import (
    Arrays,
    GangCall,
    GangCallName,
    GangMessage,
    Hello,
    Reply,
    Welcome,
    encoded,
    received,
)
from seamlessflow.trainer.backends.step_message import answered, question, to_arrays
from seamlessflow.trainer.data.chains import AnnotatedColumns, Column
from seamlessflow.trainer.data.packing import Layout, MicroBatch
from seamlessflow.trainer.roles.gang import GangBroken

CALL_LIMIT_S = 6 * 3600.0
"""Longest time for one call, such as a step's training."""
_HELLO_S = 10.0
_LOOK_S = 0.2
_EMPTY: Arrays = {}
_ALIVE = {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 4, "TCP_USER_TIMEOUT": 30_000}
"""TCP options that probe a silent connection: seconds, a count (`TCP_KEEPCNT`), the last one
milliseconds. Not every system has all."""


class ChannelClosed(ConnectionError):
    """A connection that ended while a message was awaited."""


class GangAbsent(SeamlessFlowError):
    """A gang whose first rank did not come in time."""

    lasting = False

    def __init__(self, address: str, waited_s: float) -> None:
        self.address = address
        self.waited_s = waited_s
        super().__init__(
            f"no rank 0 connected to {address} in {waited_s:g} s: is there a training process "
            "(python -m seamlessflow.trainer.ranks) with trainer.rank 0 that reaches this address?"
        )


class Channel:
    """A socket, and a thread that delivers its messages.

    `deliver` and `lost` run on that thread; `lost` once, when the other side is gone.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        # Each message is sent whole, so waiting for more of it only delays.
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        # A machine that vanishes closes no connection: the kernel probes it, then gives it up.
        for name, value in _ALIVE.items():
            if (option := getattr(socket, name, None)) is not None:
                connection.setsockopt(socket.IPPROTO_TCP, option, value)
        self._sending = threading.Lock()

    def send(self, message: GangMessage, arrays: Arrays = _EMPTY) -> None:
        """Send a message. Raises `OSError` if the other side is gone."""
        data = encoded(message, arrays)
        with self._sending:
            self._connection.sendall(data)

    def receive(self, limit_s: float) -> tuple[GangMessage, Arrays]:
        """Return the first message; call it before `start`. Raises `OSError` or `ValueError`."""
        self._connection.settimeout(limit_s)
        try:
            return received(self._exactly)
        finally:
            self._connection.settimeout(None)

    def start(
        self, deliver: Callable[[GangMessage, Arrays], None], lost: Callable[[str], None]
    ) -> None:
        """Begin to deliver; `lost` gets the reason why no more messages come."""

        def run() -> None:
            try:
                while True:
                    deliver(*received(self._exactly))
            except (OSError, ValueError) as error:
                lost(str(error))

        self._thread = threading.Thread(target=run, name="gang link", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the connection, also for a thread that waits for it."""
        with suppress(OSError):  # the other side was faster
            self._connection.shutdown(socket.SHUT_RDWR)
        self._connection.close()

    def _exactly(self, count: int) -> bytes:
        data = bytearray(count)
        view = memoryview(data)
        while view:
            size = self._connection.recv_into(view)
            if size == 0:
                raise ChannelClosed("the connection ended")
            view = view[size:]
        return bytes(data)


class GangBackend:
    """A `Backend` (see `trainer/backends/backend.py`) that calls the gang's first rank over TCP."""

    def __init__(self, host: str, trainer: str) -> None:
        """Listen on a free port of `host` for the first rank. Raises `OSError`."""
        self._trainer = trainer
        self._listener = listener_on(host)
        self.address = address_of(host, self._listener.getsockname()[1])
        """host:port at which the first rank is expected."""
        self.token = secrets.token_urlsafe(24)
        self._numbers = itertools.count()
        self._waiting: dict[int, Queue[tuple[Reply, Arrays] | str]] = {}
        """A queue for the reply to each call under way."""
        self._channel: Channel | None = None
        self._hello: Hello | None = None
        self._remembered: tuple[int, ...] = ()
        self.lost = ""
        """The reason why the connection ended; empty while it lasts."""

    def connect(self, limit_s: float, stopping: Stopping) -> None:
        """Wait for the first rank. Raises `GangAbsent`, at once when `stopping`."""
        deadline = time.monotonic() + limit_s
        self._listener.settimeout(_LOOK_S)
        with self._listener:
            while self._channel is None:
                if stopping() or time.monotonic() > deadline:
                    raise GangAbsent(self.address, limit_s)
                try:
                    connection, _ = self._listener.accept()
                except TimeoutError:
                    continue
                self._admit(Channel(connection))

    def end(self, finished: bool) -> None:
        """Let the rank end in order: the run is `finished`, or the trainer was asked to end."""
        last = GangCall(name=GangCallName.FINISH if finished else GangCallName.END)
        if self._channel is not None:
            with suppress(OSError):  # the rank has ended too
                self._channel.send(last)

    def close(self) -> None:
        """Close the connection; a call under way raises `GangBroken`."""
        self._listener.close()
        if self._channel is not None:
            self._channel.close()

    @property
    def machine(self) -> Machine:
        return self._known.machine

    @property
    def dtype(self) -> str:
        return self._known.dtype

    @property
    def layout(self) -> Layout:
        return self._known.layout

    @property
    def worker(self) -> str:
        """Return the first rank's worker."""
        return self._known.worker

    def annotate(
        self, batches: Sequence[MicroBatch], columns: Sequence[Column]
    ) -> AnnotatedColumns:
        call = GangCall(name=GangCallName.ANNOTATE)
        _, arrays = self._call(call, question(batches, columns))
        return answered(arrays, columns, len(batches))

    def train(self, step: StepInput) -> Mapping[str, float]:
        total = sum(len(batch) for batch in step.micro_batches)
        return self._call(GangCall(name=GangCallName.TRAIN), to_arrays(step, total))[0].metrics

    def remember(self, version: int) -> None:
        self._call(GangCall(name=GangCallName.REMEMBER, version=version))

    def remembered(self) -> Sequence[int]:
        return self._remembered

    def write_weights(self, directory: Path) -> None:
        self._call(GangCall(name=GangCallName.WRITE, path=str(directory)))

    def snapshot(self) -> None:
        self._call(GangCall(name=GangCallName.SNAPSHOT))

    def save(self, directory: Path) -> None:
        self._call(GangCall(name=GangCallName.SAVE, path=str(directory)))

    def load(self, directory: Path | None, version: int) -> None:
        path = "" if directory is None else str(directory)
        self._call(GangCall(name=GangCallName.LOAD, path=path, version=version))

    def rest(self, step: int = NO_STEP) -> None:
        self._send(GangCall(name=GangCallName.REST, step=step), {})

    @property
    def _known(self) -> Hello:
        if self._hello is None:
            raise GangBroken("rank 0", "it has not connected")
        return self._hello

    def _admit(self, channel: Channel) -> None:
        """Take the connection if its first message has the token."""
        try:
            hello, _ = channel.receive(_HELLO_S)
            if isinstance(hello, Hello) and hmac.compare_digest(hello.token, self.token):
                channel.send(Welcome(trainer=self._trainer))
                self._hello = hello
                self._channel = channel
                channel.start(self._deliver, self._end)
                return
        except (OSError, ValueError):
            pass  # not a rank of this gang; the right one is still waited for
        channel.close()

    def _deliver(self, message: GangMessage, arrays: Arrays) -> None:
        if isinstance(message, Reply) and (waiting := self._waiting.get(message.number)):
            waiting.put((message, arrays))

    def _end(self, reason: str) -> None:
        self.lost = reason or "the connection ended"
        for waiting in list(self._waiting.values()):
            waiting.put(self.lost)

    def _send(self, call: GangCall, arrays: Arrays) -> None:
        if self._channel is None or self.lost:
            raise GangBroken(self._known.worker, self.lost)
        try:
            self._channel.send(call, arrays)
        except OSError as error:
            raise GangBroken(self._known.worker, str(error)) from error

    def _call(self, call: GangCall, arrays: Arrays | None = None) -> tuple[Reply, Arrays]:
        """Return the reply and its arrays. It may take hours; a lost rank ends the wait at once.

        Raise `GangBroken`, and `UpdateFailed` if the call's update failed.
        """
        number = next(self._numbers)
        answer = Queue[tuple[Reply, Arrays] | str]()
        # Before the call is sent: if the connection ends now, `_end` answers every waiting call.
        self._waiting[number] = answer
        try:
            self._send(replace(call, number=number), arrays or {})
            received = answer.get(timeout=CALL_LIMIT_S)
        except Empty as error:
            raise GangBroken(self.worker, f"no reply in {CALL_LIMIT_S:g} s") from error
        finally:
            del self._waiting[number]
        if isinstance(received, str):
            raise GangBroken(self._known.worker, received)
        if (chains := received[0].chains) is not None:
            raise UpdateFailed(received[0].error, chains)
        if received[0].error:
            raise GangBroken(self._known.worker, received[0].error)
        self._remembered = received[0].remembered
        return received
