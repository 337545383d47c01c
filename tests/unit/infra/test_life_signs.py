"""Signs of life: sent as long as a process works, and received."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from seamlessflow.infra.life_signs import DEADLINE, PROCESS, SIGN, SOCKET, LifeSigns, SignSocket
from tests.paths import ROOT
from tests.waiting import until

DEADLINE_S = 0.2
SYNC = """
import os
from seamlessflow.infra.process import run_sync
assert "NOTIFY_SOCKET" in os.environ
def main(stop):
    print([name for name in os.environ if "NOTIFY" in name], flush=True)
    while not stop.wait(0.1):  # a signal that another thread took is handled when this one wakes
        pass
run_sync(main)
"""
ASYNC = """
import sys, uvloop
from seamlessflow.infra.process import run
async def main(stop):
    import asyncio, time
    await asyncio.sleep(0.5)
    stuck_here()
def stuck_here():
    import time
    time.sleep(3600)
run(main{loop})
"""


class Supervised:
    """A process, and the socket for its signs."""

    def __init__(self, code: str, path: str, **added: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        self._socket.bind(path)
        self.process = subprocess.Popen(
            [sys.executable, "-c", code],
            cwd=ROOT,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, SOCKET: path, DEADLINE: str(int(DEADLINE_S * 1e6)), **added},
        )

    def signed(self) -> bool:
        """Return whether a sign came since the last call."""
        try:
            return self._socket.recv(100) == SIGN
        except BlockingIOError:
            return False

    def silent(self) -> bool:
        """Return whether no sign comes for several deadlines."""
        while self.signed():
            pass
        try:
            self.process.wait(5 * DEADLINE_S)
        except subprocess.TimeoutExpired:
            return not self.signed()
        return True

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()
        self._socket.close()


@pytest.fixture
def path() -> Iterator[str]:
    """Return a path that is short enough for a socket."""
    with TemporaryDirectory() as directory:
        yield str(Path(directory, "signs"))


def test_a_process_gives_signs_until_it_is_frozen_and_its_children_do_not(path: str) -> None:
    supervised = Supervised(SYNC, path)
    for _ in range(10):
        until(supervised.signed, "a sign", 20)
    supervised.process.send_signal(signal.SIGSTOP)
    until(supervised.silent, "silence", 20)
    supervised.process.send_signal(signal.SIGCONT)
    until(supervised.signed, "a sign", 20)
    supervised.process.send_signal(signal.SIGTERM)
    out, _ = supervised.process.communicate(timeout=20)
    assert (supervised.process.returncode, out) == (0, "[]\n")
    supervised.close()


@pytest.mark.parametrize("loop", ["", ", uvloop.new_event_loop"], ids=["asyncio", "uvloop"])
def test_a_blocked_event_loop_gives_no_sign_and_says_where_it_stands(path: str, loop: str) -> None:
    supervised = Supervised(ASYNC.format(loop=loop), path)
    until(supervised.signed, "a sign", 20)
    until(supervised.silent, "silence", 20)
    supervised.process.send_signal(signal.SIGABRT)
    _, err = supervised.process.communicate(timeout=20)
    assert supervised.process.returncode == -signal.SIGABRT
    assert "in stuck_here" in err
    supervised.close()


def test_signs_that_another_process_should_give_are_not_given(path: str) -> None:
    supervised = Supervised(SYNC, path, **{PROCESS: "1"})
    assert supervised.process.stdout is not None
    assert supervised.process.stdout.readline() == "[]\n"
    assert supervised.silent()
    supervised.close()


@pytest.mark.parametrize("length", [1, 100, 107, 108, 200])
def test_a_sign_arrives_whatever_the_length_of_the_path(tmp_path: Path, length: int) -> None:
    path = tmp_path / ("d" * length) / "ü, 1"
    path.parent.mkdir()
    with closing(SignSocket(path)) as signs, closing(LifeSigns(str(path), 1)) as sender:
        assert not signs.signed()
        sender.send()
        assert signs.signed()
    assert not path.exists()


def test_a_supervisor_that_is_gone_ends_no_sender(tmp_path: Path) -> None:
    with closing(LifeSigns(str(tmp_path / ("d" * 200) / "1"), 1)) as sender:
        sender.send()
