"""Signals to a command that has no handlers of its own yet."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from seamlessflow.processes.stopping import Interrupted

LIMIT_S = 120


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_command_that_reads_its_configuration_ends_with_a_line(
    tmp_path: Path, number: signal.Signals
) -> None:
    pipe = tmp_path / "run.yaml"
    os.mkfifo(pipe)
    command = [sys.executable, "-m", "seamlessflow", "simulate", "--config", str(pipe)]
    with (
        subprocess.Popen(
            command,
            stderr=subprocess.PIPE,
            text=True,
            # The tests themselves may run under nohup.
            preexec_fn=lambda: signal.signal(number, signal.SIG_DFL),
        ) as process,
        pipe.open("w"),  # opens once the command reads
    ):
        process.send_signal(number)
        _, said = process.communicate(timeout=LIMIT_S)
    assert (process.returncode, said) == (Interrupted.status, "seamlessflow: stopped as asked\n")


def test_a_command_that_is_to_outlive_its_terminal_does(tmp_path: Path) -> None:
    pipe = tmp_path / "run.yaml"
    os.mkfifo(pipe)
    command = ["nohup", sys.executable, "-m", "seamlessflow", "simulate", "--config", str(pipe)]
    with (
        subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process,
        pipe.open("w") as run,  # opens once the command reads
    ):
        process.send_signal(signal.SIGHUP)
        run.write("nothing: 1")
        run.close()
        _, said = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 78
    assert "nothing: there is no such setting" in said
