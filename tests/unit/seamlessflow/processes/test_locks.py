"""Locks of a run: of its directory, and of its topics by the members of a group."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from seamlessflow.demo.directory import set_aside
from seamlessflow.infra.errors import ExitStatus, SettingsRejected
from seamlessflow.processes.locks import RunUnderWay, only_run, others, owner_of, refuse_running
from seamlessflow.rehearsal.directory import REPORT
from tests.paths import ROOT

HOLDS = """
import sys
from pathlib import Path
from seamlessflow.processes.locks import only_run
with only_run(Path(sys.argv[1])):
    print("held", flush=True)
    input()
"""

OUT = Path("/runs/a")
ELSEWHERE = owner_of(Path("/runs/b"), 100)


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


@pytest.mark.parametrize("place", ["file/runs/a", "file", "directory"])
def test_a_place_where_no_directory_can_be_made_is_a_wrong_setting(
    place: str, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "directory" / "run.lock").mkdir(parents=True)
    out = tmp_path / place
    with pytest.raises(SettingsRejected) as refused, only_run(out):
        pass
    assert str(refused.value).startswith(f"out: nothing can be written in {out}: ")
    assert refused.value.process_status(ready=False) is ExitStatus.LASTING


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


def test_the_command_of_another_directory_holds_them() -> None:
    assert others([ELSEWHERE], OUT) == [ELSEWHERE]
    assert "out /runs/b, since 1970-01-01 00:01:40 UTC" in ELSEWHERE


def test_an_earlier_command_of_the_same_directory_is_dead() -> None:
    assert others([owner_of(OUT, 50)], OUT) == []
    assert others([owner_of(OUT / "deeper", 50)], OUT) != []


def test_the_first_of_several_comes_first() -> None:
    earlier = owner_of(Path("/runs/z"), 99)
    assert others([ELSEWHERE, earlier], OUT) == [earlier, ELSEWHERE]


def test_the_same_directory_of_another_host_is_another_one() -> None:
    owner = "process 7 of elsewhere, out /runs/a, since 1970-01-01 00:01:40 UTC"
    assert others([owner], OUT) == [owner]
