"""Scratch directories, of processes that run and of those that were killed."""

import subprocess
import sys
from pathlib import Path

from seamlessflow.infra.disk.scratch_directory import ScratchDirectory

KILLED = """
import os, signal, sys
from pathlib import Path
from seamlessflow.infra.disk.scratch_directory import ScratchDirectory
made = ScratchDirectory(Path(sys.argv[1]))
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_the_directory_of_a_killed_process_is_removed_by_the_next_one(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], check=False)
    (left,) = tmp_path.iterdir()

    ScratchDirectory(tmp_path).close()
    assert not left.exists()


def test_directories_of_a_process_that_runs_and_of_others_stay(tmp_path: Path) -> None:
    other = tmp_path / "seamlessflow-other"
    other.mkdir()
    first, second = ScratchDirectory(tmp_path), ScratchDirectory(tmp_path)
    assert first.path.exists()

    first.close()
    second.close()
    assert list(tmp_path.iterdir()) == [other]
