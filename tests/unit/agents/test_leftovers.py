"""Programs that an environment's process left are ended by the mark among their variables."""

import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from seamlessflow.producers.agents.environments.leftovers import end_marked
from tests.waiting import PATIENCE_S

MARK = b"HOME=/\0ENVIRONMENT_PROCESS_MARK=mine\0"
PROGRAM, THREAD_OF_KERNEL = 0x00400000, 0x00200040


@pytest.fixture
def left() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process
        process.kill()


def shown(processes: Path, pid: int, variables: bytes, words: bytes, flags: int = PROGRAM) -> Path:
    """Write what the kernel shows of a process; return its folder."""
    folder = processes / str(pid)
    folder.mkdir(exist_ok=True)
    (folder / "environ").write_bytes(variables)
    (folder / "cmdline").write_bytes(words)
    (folder / "stat").write_text(f"{pid} (a (b) c) R 1 {pid} {pid} 0 -1 {flags} 0 0")
    return folder


def test_a_program_with_the_mark_is_ended_and_no_other(
    left: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    shown(tmp_path, left.pid, MARK.replace(b"mine", b"mine too"), b"sleep\0")
    end_marked("mine", tmp_path)
    assert left.poll() is None
    shown(tmp_path, left.pid, MARK, b"sleep\0")
    end_marked("mine", tmp_path)
    assert left.wait(PATIENCE_S) == -9


def test_a_program_that_is_just_being_started_is_ended_too(
    left: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    folder = shown(tmp_path, left.pid, b"", b"")
    ending = threading.Thread(target=end_marked, args=("mine", tmp_path))
    ending.start()
    (folder / "environ").write_bytes(MARK)
    ending.join()
    assert left.wait(PATIENCE_S) == -9


def test_what_never_has_variables_holds_nobody_up(tmp_path: Path) -> None:
    shown(tmp_path, 2**22 + 1, b"", b"made by env -i\0")
    shown(tmp_path, 2**22 + 2, b"", b"", THREAD_OF_KERNEL)
    (tmp_path / str(2**22 + 3)).mkdir()  # ended since it was listed
    ending = threading.Thread(target=end_marked, args=("mine", tmp_path), daemon=True)
    ending.start()
    ending.join(PATIENCE_S)
    assert not ending.is_alive()
