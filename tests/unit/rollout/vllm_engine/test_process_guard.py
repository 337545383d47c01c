"""Nothing is left of a guarded program, however it or its parent ends."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from seamlessflow.producers.rollout.vllm_engine import process_guard
from tests.waiting import is_gone, until

WAIT_S = 120
FAMILY = """
import pathlib, signal, subprocess, sys, time
if sys.argv[2] == "deaf":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
grandchild = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
pathlib.Path(sys.argv[1] + ".new").write_text(str(grandchild.pid))
pathlib.Path(sys.argv[1] + ".new").rename(sys.argv[1])
if sys.argv[2] == "leaves":
    sys.exit(7)
time.sleep(600)
"""
"""A program with a child, whose process id it writes to a file."""

ASKED_WITH_THE_LOCK_TAKEN = """
import os, runpy, signal, sys, threading

class Lock:
    def __init__(self):
        self.real, self.taken = original(), 0
    def acquire(self, *args):
        got = self.real.acquire(*args)
        self.taken += got
        if self.taken == 10:
            os.kill(os.getpid(), signal.SIGTERM)
        return got
    def release(self):
        self.real.release()
    def __enter__(self):
        self.acquire()
    def __exit__(self, *error):
        self.release()

import subprocess
original, threading.Lock = threading.Lock, Lock
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
"""Runs the guard; SIGTERM arrives when `Popen.wait` has just taken its lock for the tenth time."""


@contextmanager
def guarded(file: Path, kind: str, parent: int | None = None) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-c", FAMILY, str(file), kind]
    guard = [sys.executable, "-I", process_guard.__file__, str(parent or os.getpid()), "0.2"]
    process = subprocess.Popen([*guard, *command])
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def written_pid(file: Path) -> int:
    until(file.exists)
    return int(file.read_text())


@pytest.mark.parametrize("kind", ["hears", "deaf"])
def test_what_is_asked_to_end_ends_with_all_its_children(tmp_path: Path, kind: str) -> None:
    file = tmp_path / "pid"
    with guarded(file, kind) as guard:
        grandchild = written_pid(file)
        guard.send_signal(signal.SIGTERM)
        guard.wait(WAIT_S)
        until(lambda: is_gone(grandchild))


def test_it_ends_when_asked_while_it_looks_at_the_program(tmp_path: Path) -> None:
    file = tmp_path / "pid"
    guard = [sys.executable, "-c", ASKED_WITH_THE_LOCK_TAKEN, process_guard.__file__]
    program = [str(os.getpid()), "0.2", sys.executable, "-c", FAMILY, str(file), "hears"]
    with subprocess.Popen([*guard, *program]) as process:
        try:
            assert process.wait(WAIT_S) == 128 + signal.SIGTERM
        finally:
            process.kill()


def test_the_end_of_the_program_is_told_and_its_children_end_with_it(tmp_path: Path) -> None:
    file = tmp_path / "pid"
    with guarded(file, "leaves") as guard:
        assert guard.wait(WAIT_S) == 7
        grandchild = written_pid(file)
        until(lambda: is_gone(grandchild))


def test_a_killed_parent_ends_it(tmp_path: Path) -> None:
    file = tmp_path / "pid"
    command = [sys.executable, "-I", process_guard.__file__]
    parent = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import os, subprocess, sys, time\n"
            "subprocess.Popen([*sys.argv[1:4], str(os.getpid()), '0.2', *sys.argv[4:]])\n"
            "time.sleep(600)",
            *command,
            *(sys.executable, "-c", FAMILY, str(file), "deaf"),
        ]
    )
    grandchild = written_pid(file)
    parent.kill()
    parent.wait()
    until(lambda: is_gone(grandchild))


def test_it_starts_nothing_for_a_parent_that_is_gone_already(tmp_path: Path) -> None:
    file = tmp_path / "pid"
    with guarded(file, "hears", parent=1) as guard:
        assert guard.wait(WAIT_S) == 1
    assert not file.exists()
