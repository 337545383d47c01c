"""Signals that ask a command to end, in a process of their own."""

import signal
import subprocess
import sys

import pytest

from tests.paths import ROOT

PROGRAM = """
import os, sys
from seamlessflow.processes.stopping import stoppable

with stoppable(*sys.argv[2:]) as stop:
    os.kill(os.getpid(), int(sys.argv[1]))
    print("asked", stop.asked, flush=True)
    os.kill(os.getpid(), int(sys.argv[1]))
    print("goes on", flush=True)
"""


def ended(number: int, *left: str) -> subprocess.CompletedProcess[str]:
    """Return a process that got the signal twice."""
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, str(number), *left],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_says_what_is_left_and_ends_at_once(number: int) -> None:
    done = ended(number, "the run is in out")

    assert done.stdout == "asked True\n"
    assert done.stderr.splitlines() == [
        "seamlessflow: ending in order; the same signal once more ends at once",
        "seamlessflow: ended at once; the run is in out",
    ]
    assert done.returncode == -number


def test_a_command_that_leaves_nothing_ends_without_a_word() -> None:
    done = ended(signal.SIGINT)

    assert (done.stderr, done.returncode) == ("", -signal.SIGINT)
