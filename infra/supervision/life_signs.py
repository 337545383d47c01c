"""Signs of life of a process for the supervisor that started it, by systemd's protocol.

The supervisor names a datagram socket in `NOTIFY_SOCKET` and its deadline in `WATCHDOG_USEC`. The
process sends `WATCHDOG=1` several times within it (sd_notify(3), sd_watchdog_enabled(3)). A process
that is frozen, or whose event loop is blocked, sends none. A run's launcher, or systemd with
`WatchdogSec=`, then ends it and starts it again. Called by `infra/process.py`.
"""

import asyncio
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from seamlessflow.infra.supervision.socket_names import kernel_name

SOCKET, DEADLINE, PROCESS = "NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"
SIGN = b"WATCHDOG=1"
_SIGNS_WITHIN_DEADLINE = 4
_US = 1_000_000


class LifeSigns:
    """Sender of signs to one supervisor, `every_s` seconds."""

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
            with kernel_name(Path(self._address)) as name:
                self._socket.sendto(SIGN, name)

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()


def asked_for() -> LifeSigns | None:
    """Return the sender that the environment asks for, or None; children do not inherit it."""
    address = os.environ.pop(SOCKET, "")
    deadline, process = os.environ.pop(DEADLINE, ""), os.environ.pop(PROCESS, "")
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

    Not from the main thread: loading a model or waiting for Kafka may take minutes there.
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
