"""A run whose agent always raises: it says why at once, and ends."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from seamlessflow.infra.errors import ExitStatus
from tests.e2e.runs.short_run import short_run

pytestmark = pytest.mark.slow

LIMIT_S = 400
AGENT = """
def run(task, session):
    raise LookupError("no table for this task")
"""


def test_an_agent_that_always_raises_is_shown_with_its_traceback_and_ends_the_run(
    tmp_path: Path,
) -> None:
    config = short_run(tmp_path, AGENT, steps=3, modelled=True)
    done = subprocess.run(
        [sys.executable, "-m", "seamlessflow", "train", "--config", str(config)],
        cwd=tmp_path,
        env={**os.environ, "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    said = done.stdout
    assert done.returncode == ExitStatus.LASTING, said + done.stderr
    assert re.search(r"! sample \d of group .* failed: Traceback \(most recent call last\):", said)
    assert "short_agent.py" in said
    assert "samples failed: LookupError: no table for this task" in said.splitlines()[-1]
    assert "nothing could be trained in 5 steps in a row" in done.stderr
    assert "failed), the newest: 0 sessions and no attempt left" in done.stderr
    assert done.stderr.rstrip().endswith("LookupError: no table for this task")
