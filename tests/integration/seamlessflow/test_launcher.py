"""Children of the launcher: real processes that are watched, ended in order, and end with it."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from seamlessflow.processes.child import ChildEnded, ChildSpec
from seamlessflow.processes.launcher import Launcher, NotReady
from seamlessflow.processes.stopping import Interrupted, Stop
from tests.waiting import until

LIMIT_S = 30
PROGRAMS = {
    "waits": "import signal; print('waiting', flush=True); signal.sigwait([signal.SIGTERM])",
    "stubborn": """
import signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("waiting", flush=True)
signal.sigwait([signal.SIGUSR1])
""",
    "fails": "raise SystemExit('the disk is full')",
    "succeeds": "print('done')",
    "launches": """
import os, sys
from pathlib import Path
from seamlessflow.processes.child import ChildSpec
from seamlessflow.processes.launcher import Launcher
from seamlessflow.processes.stopping import Stop
with Launcher(Path(sys.argv[1]), Stop()) as launcher:
    child = launcher.start(ChildSpec("waits", "waits", os.environ))
    launcher.wait_for("output", lambda: "waiting" in child.tail(), 30)
    print(child.pid, flush=True)
    launcher.wait_for("the end of time", lambda: False, 3600)
""",
}


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """Return a folder with modules to run."""
    for name, program in PROGRAMS.items():
        (tmp_path / f"{name}.py").write_text(program)
    return tmp_path


def spec(programs: Path, module: str, name: str = "", **fields: object) -> ChildSpec:
    path = os.pathsep.join([str(programs), str(Path.cwd())])
    environment = {**os.environ, "PYTHONPATH": path}
    return ChildSpec(name or module, module, environment, **fields)  # type: ignore[arg-type]


def started(launcher: Launcher, child: ChildSpec) -> int:
    """Return the process id once the process has written a line."""
    running = launcher.start(child)
    launcher.wait_for("output", lambda: "waiting" in running.tail(), LIMIT_S)
    return running.pid


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z"


def test_leaving_the_launcher_ends_what_runs(programs: Path) -> None:
    with Launcher(programs / "logs", Stop()) as launcher:
        pids = [started(launcher, spec(programs, "waits", name)) for name in ("a", "b")]
        launcher.check()
    assert all(is_gone(pid) for pid in pids)
    assert set(launcher.peaks_mb) == {"a", "b"}
    assert min(launcher.peaks_mb.values()) > 1


def test_a_process_that_ends_by_itself_ends_the_run_with_its_last_words(programs: Path) -> None:
    with (
        Launcher(programs / "logs", Stop()) as launcher,
        pytest.raises(ChildEnded, match="the disk is full") as raised,
    ):
        launcher.start(spec(programs, "fails"))
        launcher.wait_for("anything", lambda: False, LIMIT_S)
    assert (raised.value.name, raised.value.exit_status) == ("fails", 1)


def test_a_process_that_does_not_end_in_time_is_killed(programs: Path) -> None:
    with Launcher(programs / "logs", Stop()) as launcher:
        pid = started(launcher, spec(programs, "stubborn", stop_s=0.2))
        launcher.end(["stubborn"])
        assert is_gone(pid)


def test_a_finite_process_is_waited_for(programs: Path) -> None:
    with Launcher(programs / "logs", Stop()) as launcher:
        launcher.run(spec(programs, "succeeds", finite=True), LIMIT_S)
        assert launcher.running == {}
        with pytest.raises(ChildEnded):
            launcher.run(spec(programs, "fails", finite=True), LIMIT_S)


def test_what_does_not_come_in_time_is_told_with_all_logs(programs: Path) -> None:
    with Launcher(programs / "logs", Stop()) as launcher:
        started(launcher, spec(programs, "waits"))
        with pytest.raises(NotReady, match=r"(?s)the impossible.*waiting"):
            launcher.wait_for("the impossible", lambda: False, 0.1)


def test_being_asked_to_stop_interrupts_every_wait(programs: Path) -> None:
    stop = Stop()
    with Launcher(programs / "logs", stop) as launcher:
        started(launcher, spec(programs, "waits"))
        stop.set()
        with pytest.raises(Interrupted):
            launcher.wait_for("the impossible", lambda: False, LIMIT_S)


def test_children_end_even_when_the_launcher_is_killed(programs: Path) -> None:
    wanted = spec(programs, "launches")
    launcher = subprocess.Popen(
        [sys.executable, "-m", "launches", str(programs / "logs")],
        env=dict(wanted.environment),
        stdout=subprocess.PIPE,
    )
    assert launcher.stdout is not None
    with launcher.stdout as said:
        pid = int(said.readline())
    launcher.send_signal(signal.SIGKILL)
    launcher.wait(LIMIT_S)
    until(lambda: is_gone(pid), "its end", LIMIT_S)
