"""Lock of the directory of a run."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from seamlessflow.infra.errors import ExitStatus
from seamlessflow.processes.run_lock import RunUnderWay, only_run, refuse_running
from seamlessflow.rehearsal.directory import REPORT
from seamlessflow.runs.earlier_runs import set_aside
from tests.paths import ROOT

HOLDS = """
import sys
from pathlib import Path
from seamlessflow.processes.run_lock import only_run
with only_run(Path(sys.argv[1])):
    print("held", flush=True)
    input()
"""


def test_a_second_command_in_the_same_directory_is_refused_with_the_first(tmp_path: Path) -> None:
    out = tmp_path / "runs" / "a"
    with only_run(out):
        owner = f"process {os.getpid()} of"
        with pytest.raises(RunUnderWay, match=owner) as refusal, only_run(out):
            pass
        with pytest.raises(RunUnderWay, match="end that first, or set out to another directory"):
            refuse_running(out)
        assert refusal.value.process_status(ready=False) is ExitStatus.LASTING
        with only_run(tmp_path / "runs" / "b"), only_run(out, "node-b"):
            pass
    with only_run(out):
        pass
    refuse_running(out)


def test_a_directory_in_which_nothing_ran_is_free(tmp_path: Path) -> None:
    refuse_running(tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_the_lock_ends_with_a_command_that_is_killed(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLDS, str(tmp_path)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        with pytest.raises(RunUnderWay, match=f"process {process.pid} of"):
            refuse_running(tmp_path)
        process.send_signal(signal.SIGKILL)
    with only_run(tmp_path):
        pass


def test_the_directory_of_a_run_is_not_set_aside(tmp_path: Path) -> None:
    out = tmp_path / "demo"
    with only_run(out):
        (out / REPORT).write_text("{}")
        with pytest.raises(RunUnderWay):
            set_aside(out)
    assert set_aside(out) == tmp_path / "demo-1"
