"""Leftovers of an agents' process that was killed: programs and files of its environments."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from seamlessflow.producers.agents.environments.leftovers import EnvironmentFolder, end_abandoned
from tests.paths import ROOT
from tests.waiting import is_gone, until

LIMIT_S = 120.0
AGENTS = """
import os, subprocess, sys
from seamlessflow.producers.agents.environments.leftovers import EnvironmentFolder

folder = EnvironmentFolder()
sleeper = [sys.executable, "-c", "import signal; signal.pause()"]
environment = {**os.environ, **folder.variables}
program = subprocess.Popen(sleeper, env=environment, start_new_session=True)
(folder.path / "file").write_text("x")
print(program.pid, folder.path, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder in which temporary files are made."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@pytest.fixture
def agents(temporary: Path) -> Iterator[subprocess.Popen[str]]:
    """Yield a process that has a folder and a program."""
    variables = {**os.environ, "TMPDIR": str(temporary), "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        [sys.executable, "-c", AGENTS],
        env=variables,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        yield process
        process.kill()


def test_the_next_process_ends_what_a_killed_one_left(agents: subprocess.Popen[str]) -> None:
    assert agents.stdout is not None
    program, folder = agents.stdout.readline().split()
    ours = EnvironmentFolder()

    end_abandoned()
    assert not is_gone(int(program)) and (Path(folder) / "file").exists(), "its process lives"
    agents.kill()
    agents.wait()
    end_abandoned()

    until(lambda: is_gone(int(program)), "the end of the program", LIMIT_S)
    assert not Path(folder).exists()
    assert ours.path.exists()
    ours.remove()


def test_a_folder_goes_with_its_process_in_order(temporary: Path) -> None:
    folder = EnvironmentFolder()
    (folder.path / "file").write_text("x")
    folder.remove()
    assert list(temporary.iterdir()) == []
