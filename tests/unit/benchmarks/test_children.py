"""The processes of a benchmark."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import is_gone, until

STARTS = """
import sys
from benchmarks.load.children import Children
print(Children().start("waits", "waits", environment={"PYTHONPATH": sys.argv[1]}).pid, flush=True)
input()
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="Linux only")
def test_they_end_with_a_benchmark_that_is_killed(tmp_path: Path) -> None:
    (tmp_path / "waits.py").write_text("import threading\nthreading.Event().wait()\n")
    with subprocess.Popen(
        [sys.executable, "-c", STARTS, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert not is_gone(pid)
        parent.kill()
    until(lambda: is_gone(pid))
