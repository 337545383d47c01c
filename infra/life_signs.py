"""A process's signs of life for the supervisor that started it, by systemd's protocol.

The supervisor names a datagram socket in `NOTIFY_SOCKET` and its deadline in `WATCHDOG_USEC`. The
process sends `WATCHDOG=1` several times within it (sd_notify(3), sd_watchdog_enabled(3)). A frozen
process sends none, nor does one whose event loop is blocked. The supervisor then ends it and starts
it again. The supervisor is a run's launcher, which gets the signs on a `SignSocket`, or systemd
with `WatchdogSec=`. Processes send them by `infra/process.py`.
"""

import asyncio
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

SOCKET = "NOTIFY_SOCKET"
DEADLINE = "WATCHDOG_USEC"
PROCESS = "WATCHDOG_PID"
SIGN = b"WATCHDOG=1"
_SIGNS_WITHIN_DEADLINE = 4
_US = 1_000_000

_LONGEST_SIGN_BYTES = 4096

_LONGEST_NAME_BYTES = 107
"""From unix(7) on Linux: `sun_path` has 108 bytes, and the last one is zero."""


class LifeSigns:
    """Sender of signs to one supervisor, due every `every_s` seconds."""

    def __init__(self, address: str, every_s: float) -> None:
        self.every_s = every_s
        self._address = address
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)

    def send(self) -> None:
        """Send a sign, unless the supervisor is gone or reads none at present."""
        with suppress(OSError):
            # A leading @ stands for the zero byte of Linux's names without a file.
            if self._address.startswith("@"):
                self._socket.sendto(SIGN, f"\0{self._address[1:]}")
                return
            with _kernel_name(Path(self._address)) as name:
                self._socket.sendto(SIGN, name)

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()


def asked_for() -> LifeSigns | None:
    """Return the sender that the environment asks for, or None; children do not inherit it."""
    address = os.environ.pop(SOCKET, "")
    deadline = os.environ.pop(DEADLINE, "")
    process = os.environ.pop(PROCESS, "")
    mine = process in ("", str(os.getpid()))
    if not (address and deadline.isdecimal() and int(deadline) and mine):
        return None
    return LifeSigns(address, int(deadline) / _US / _SIGNS_WITHIN_DEADLINE)


@contextmanager
def of_loop() -> Iterator[None]:
    """Send signs from the running event loop, so none while it is blocked."""
    signs = asked_for()
    if signs is None:
        yield
        return

    async def sending(signs: LifeSigns) -> None:
        while True:
            signs.send()
            await asyncio.sleep(signs.every_s)

    task = asyncio.get_running_loop().create_task(sending(signs))
    try:
        yield
    finally:
        task.cancel()
        signs.close()


@contextmanager
def of_threads() -> Iterator[None]:
    """Send signs from a thread, so none while this process is frozen.

    The main thread does not send them: it may load a model or wait for Kafka for minutes.
    """
    signs = asked_for()
    if signs is None:
        yield
        return
    ending = threading.Event()

    def sending(signs: LifeSigns) -> None:
        signs.send()
        while not ending.wait(signs.every_s):
            signs.send()

    thread = threading.Thread(target=sending, args=(signs,), name="life signs", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ending.set()
        thread.join()
        signs.close()


class SignSocket:
    """A datagram socket at `path`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        with _kernel_name(path) as name:
            self._socket.bind(name)

    def signed(self) -> bool:
        """Return whether a sign came since the last call."""
        came = False
        try:
            while True:
                self._socket.recv(_LONGEST_SIGN_BYTES)
                came = True
        except BlockingIOError:
            return came

    def close(self) -> None:
        """Close the socket and remove its file."""
        self._socket.close()
        self._path.unlink(missing_ok=True)


@contextmanager
def _kernel_name(path: Path) -> Iterator[str]:
    """Yield a name for `path` that is short enough, for one call. Raises `OSError`.

    A long path's name leads through its directory, opened by this process.
    """
    if len(os.fsencode(path)) <= _LONGEST_NAME_BYTES:
        yield str(path)
        return
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{directory}/{path.name}"
    finally:
        os.close(directory)
