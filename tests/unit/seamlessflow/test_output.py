"""Outputs of commands whose encoding lacks letters that are printed."""

import os
import subprocess
import sys

import pytest

from schemas.releases import this_release
from tests.paths import ROOT

LIMIT_S = 120


@pytest.mark.parametrize(
    ("encoding", "shown"), [("ascii", r"\xfc\u65e5"), ("latin-1", r"ü\u65e5"), ("utf-8", "ü日")]
)
def test_a_letter_that_an_output_lacks_ends_no_command(encoding: str, shown: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "seamlessflow", "doctor", "--model", "ü日"],
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
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
