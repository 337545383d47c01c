"""Child processes: their log, their end, and that they end with this process."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from seamlessflow.infra.child import ChildProcess
from tests.waiting import is_gone, until

WAIT_S = 120
WAITS = "import signal; print('waiting', flush=True); signal.sigwait([signal.SIGTERM])"
STUBBORN = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n{WAITS}"
STARTS_ON_A_THREAD = """
import sys, threading
from pathlib import Path
from seamlessflow.infra.child import ChildProcess
def start():
    child = ChildProcess([sys.executable, "-c", sys.argv[1]], Path(sys.argv[2]))
    print(child.pid, flush=True)
thread = threading.Thread(target=start)
thread.start()
thread.join()
input()
"""


def started(program: str, log_file: Path) -> ChildProcess:
    child = ChildProcess([sys.executable, "-c", program], log_file)
    until(lambda: "waiting" in child.tail())
    return child


def test_a_child_ends_when_asked_and_its_log_begins_where_it_was_started(tmp_path: Path) -> None:
    log_file = tmp_path / "log"
    log_file.write_text("of an earlier life\n")
    child = started(WAITS, log_file)
    assert (child.running, child.exit_status, child.tail()) == (True, None, "waiting")
    child.stop(WAIT_S)
    assert (child.running, child.exit_status) == (False, -signal.SIGTERM)
    assert log_file.read_text() == "of an earlier life\nwaiting\n"


def test_the_end_of_a_log_that_was_cut_meanwhile_is_shown(tmp_path: Path) -> None:
    log_file = tmp_path / "log"
    log_file.write_text("of an earlier life\n" * 100)
    child = started(WAITS, log_file)
    log_file.write_text("what is left\n")
    assert child.tail() == "what is left"
    child.kill()


def test_a_child_that_does_not_end_in_time_is_killed(tmp_path: Path) -> None:
    child = started(STUBBORN, tmp_path / "log")
    child.stop(0.1)
    assert child.exit_status == -signal.SIGKILL


def test_a_child_that_cannot_be_started_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError):
        ChildProcess([sys.executable], tmp_path / "missing" / "log")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="Linux only")
def test_a_child_outlives_the_thread_but_not_the_process_that_made_it(tmp_path: Path) -> None:
    log_file = tmp_path / "log"
    with subprocess.Popen(
        [sys.executable, "-c", STARTS_ON_A_THREAD, WAITS, str(log_file)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        until(lambda: log_file.read_text() == "waiting\n")
        assert not is_gone(pid)
        parent.kill()
    until(lambda: is_gone(pid))
