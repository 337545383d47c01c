"""Outputs of commands whose encoding lacks letters that are printed."""

import os
import subprocess
import sys

import pytest

from seamlessflow.schemas.releases import this_release

LIMIT_S = 120


@pytest.mark.parametrize(
    ("encoding", "shown"), [("ascii", r"\xfc\u65e5"), ("latin-1", r"ü\u65e5"), ("utf-8", "ü日")]
)
def test_a_letter_that_an_output_lacks_ends_no_command(encoding: str, shown: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "seamlessflow", "doctor", "--model", "ü日"],
        env={
            **os.environ,
            "PYTHONIOENCODING": encoding,
            "LC_ALL": "C.UTF-8",
        },
        capture_output=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert f"there is no directory {shown}" in done.stdout.decode(encoding)
    assert b"Traceback" not in done.stderr
    assert f"log format release {this_release().version} writes it" in done.stdout.decode(encoding)


JOB = """
import sys
from seamlessflow.terminal import long_job_console
console = long_job_console()
console.print("begun")
sys.stdin.read()
for step in range(3):
    console.print(f"step {step}")
print("done", file=sys.stderr)
"""


def test_a_long_job_goes_on_when_the_reader_of_its_output_has_gone() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", JOB],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as job:
        assert job.stdin and job.stdout and job.stderr
        assert job.stdout.readline() == "begun\n"
        job.stdout.close()
        job.stdin.close()
        words = job.stderr.read()
        assert job.wait(LIMIT_S) == 0
    assert words.endswith("done\n")
    assert "nothing can be printed" in words and "the job goes on" in words


def test_a_long_job_goes_on_when_its_output_is_full() -> None:
    with open("/dev/full", "w", encoding="utf-8") as full:
        done = subprocess.run(
            [sys.executable, "-c", JOB],
            stdin=subprocess.DEVNULL,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
    assert (done.returncode, done.stderr.splitlines()[-1]) == (0, "done")
    assert "No space left" in done.stderr


@pytest.mark.parametrize("command", [["settings", "run"], ["doctor"], ["--help"]])
def test_a_short_command_says_that_its_output_is_full(command: list[str]) -> None:
    with open("/dev/full", "w", encoding="utf-8") as full:
        done = subprocess.run(
            [sys.executable, "-m", "seamlessflow", *command],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
    words = "seamlessflow: nothing can be printed ([Errno 28] No space left on device)\n"
    assert (done.returncode, done.stderr) == (1, words)


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_a_command_runs_without_outputs(closed: str) -> None:
    command = f'exec {closed}; exec "{sys.executable}" -m seamlessflow settings run'
    done = subprocess.run(
        ["bash", "-c", command],
        capture_output=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert (done.returncode, b"Traceback" in done.stderr) == (0, False)
