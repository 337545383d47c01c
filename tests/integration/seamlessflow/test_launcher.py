"""Children of the launcher: real processes that are watched, ended in order, and end with it."""

import os
import signal
import socket
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from seamlessflow.config import RestartsSection
from seamlessflow.infra.broker.broker import Broker
from seamlessflow.infra.broker.programs import SHORT_LIVED
from seamlessflow.processes.child import ChildEnded, ChildSpec
from seamlessflow.processes.launcher import Launcher, NotReady
from seamlessflow.processes.stopping import Interrupted, Stop
from seamlessflow.processes.supervisor import Supervisor
from tests.waiting import is_gone, until

LIMIT_S = 120
PROGRAMS = {
    "waits": "import signal; print('waiting', flush=True); signal.sigwait([signal.SIGTERM])",
    "stubborn": """
import signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("waiting", flush=True)
signal.sigwait([signal.SIGUSR1])
""",
    "fails": "raise SystemExit('the disk is full')",
    "misled": "import sys; print('wrong setting', file=sys.stderr); sys.exit(78)",
    "misled_later": """
import signal, sys
def ended(number, frame):
    print("wrong setting", file=sys.stderr)
    sys.exit(78)
signal.signal(signal.SIGTERM, ended)
print("waiting", flush=True)
signal.pause()
""",
    "succeeds": "print('done')",
    "blocks": """
from seamlessflow.infra.process import run
async def main(stop):
    import asyncio, time
    print("waiting", flush=True)
    await asyncio.sleep(0.5)
    stuck_here()
def stuck_here():
    import time
    time.sleep(3600)
run(main)
""",
    "lives": """
from seamlessflow.infra.process import run_sync
def main(stop):
    print("waiting", flush=True)
    stop.wait()
run_sync(main)
""",
    "launches": """
import os, sys
from pathlib import Path
from seamlessflow.processes.child import ChildSpec
from seamlessflow.processes.launcher import Launcher
from seamlessflow.config import RestartsSection
from seamlessflow.processes.stopping import Stop
from seamlessflow.processes.supervisor import Supervisor
supervisor = Supervisor(RestartsSection(), print)
with Launcher(Path(sys.argv[1]), Stop(), supervisor) as launcher:
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


def launcher_of(programs: Path, stop: Stop | None = None, **limits: float) -> Launcher:
    """Return a launcher that appends its notices to a file."""
    supervisor = Supervisor(
        RestartsSection(**{"pause_s": 0, **limits}),
        lambda line: _append(programs / "notices", line),
    )
    return Launcher(programs / "logs", stop or Stop(), supervisor)


def _append(file: Path, line: str) -> None:
    with file.open("a") as notices:
        notices.write(f"{line}\n")


def notices(programs: Path) -> list[str]:
    file = programs / "notices"
    return file.read_text().splitlines() if file.exists() else []


def started(launcher: Launcher, child: ChildSpec) -> int:
    """Return the process id once the process has written a line."""
    running = launcher.start(child)
    launcher.wait_for("output", lambda: "waiting" in running.tail(), LIMIT_S)
    return running.pid


def other(launcher: Launcher, name: str, pid: int) -> bool:
    """Return whether a process of this name runs that is not `pid`."""
    return name in launcher.running and launcher.running[name].pid != pid


def test_leaving_the_launcher_ends_what_runs(programs: Path) -> None:
    with launcher_of(programs) as launcher:
        pids = [started(launcher, spec(programs, "waits", name)) for name in ("a", "b")]
        launcher.check()
    assert all(is_gone(pid) for pid in pids)
    assert set(launcher.peaks_mb) == {"a", "b"}
    assert min(launcher.peaks_mb.values()) > 1


def test_a_process_that_ends_by_itself_ends_the_run_with_its_last_words(programs: Path) -> None:
    with (
        launcher_of(programs) as launcher,
        pytest.raises(ChildEnded, match="the disk is full") as raised,
    ):
        launcher.start(spec(programs, "fails"))
        launcher.wait_for("anything", lambda: False, LIMIT_S)
    assert (raised.value.name, raised.value.exit_status) == ("fails", 1)


def test_a_supervised_process_that_is_killed_starts_again_and_the_user_reads_it(
    programs: Path,
) -> None:
    with launcher_of(programs) as launcher:
        pid = started(launcher, spec(programs, "waits", supervised=True))
        os.kill(pid, signal.SIGKILL)
        launcher.wait_for("another life", lambda: other(launcher, "waits", pid), LIMIT_S)
    (notice,) = notices(programs)
    assert notice.startswith("waits was ended by signal 9 (Killed); it starts again in 0 s")
    assert notice in (programs / "logs" / "waits.log").read_text()


def test_a_frozen_process_is_reported_ended_and_started_again(programs: Path) -> None:
    """Holds invariant I8."""
    with launcher_of(programs, frozen_s=1) as launcher:
        still: list[str] = []
        launcher.report_to(lambda stall: still.append(f"{stall.name} {stall}"))
        pid = started(launcher, spec(programs, "lives", supervised=True))
        started(launcher, spec(programs, "lives", "another", supervised=True))
        os.kill(pid, signal.SIGSTOP)
        launcher.wait_for("another life", lambda: other(launcher, "lives", pid), LIMIT_S)
    (notice,) = notices(programs)
    assert still == ["lives gave no sign of life for 1 s"]
    assert notice.startswith(f"{still[0]} and was ended by signal 9 (Killed); it starts again")


def test_a_process_whose_event_loop_is_blocked_says_where_and_starts_again(programs: Path) -> None:
    with launcher_of(programs, frozen_s=1) as launcher:
        pid = started(launcher, spec(programs, "blocks", supervised=True))
        launcher.wait_for("another life", lambda: other(launcher, "blocks", pid), LIMIT_S)
    assert "was ended by signal 6 (Aborted)" in notices(programs)[0]
    assert "in stuck_here" in (programs / "logs" / "blocks.log").read_text()


def test_a_process_that_fails_again_and_again_ends_the_run(programs: Path) -> None:
    with (
        launcher_of(programs, most=2) as launcher,
        pytest.raises(ChildEnded, match=r"(?s)restarts\.most: 2.*the disk is full"),
    ):
        launcher.start(spec(programs, "fails", supervised=True))
        launcher.wait_for("anything", lambda: False, LIMIT_S)
    assert len(notices(programs)) == 2


def test_a_start_of_the_broker_that_fails_is_not_the_last_one(programs: Path) -> None:
    with (
        Broker(programs / "kafka", java=SHORT_LIVED) as broker,
        launcher_of(programs, most=100, pause_s=0.5, longest_pause_s=0.5) as launcher,
        socket.socket() as other_program,
    ):
        host, port = broker.bootstrap_servers.split(":")
        launcher.watch(broker)
        assert broker.pid is not None
        os.kill(broker.pid, signal.SIGKILL)
        until(lambda: not broker.running, "its end", LIMIT_S)
        other_program.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other_program.bind((host, int(port)))
        other_program.listen()
        refused = f"not started: port {port} is in use by another program"
        launcher.wait_for("failure", lambda: refused in "".join(notices(programs)[1:]), LIMIT_S)
        other_program.close()
        launcher.wait_for("another life", lambda: broker.running, LIMIT_S)


def test_a_lasting_fault_ends_the_run_without_another_start(programs: Path) -> None:
    with (
        launcher_of(programs) as launcher,
        pytest.raises(ChildEnded, match="wrong setting"),
    ):
        launcher.start(spec(programs, "misled", supervised=True))
        launcher.wait_for("anything", lambda: False, LIMIT_S)
    assert not notices(programs)


def test_a_rank_that_is_killed_takes_its_gang_with_it_and_all_start_again(programs: Path) -> None:
    names = ("a", "b")
    with launcher_of(programs) as launcher:
        ranks = [spec(programs, "waits", name, supervised=True, gang="g") for name in names]
        pids = [started(launcher, rank) for rank in ranks]
        os.kill(pids[0], signal.SIGKILL)
        for name, pid in zip(names, pids, strict=True):
            launcher.wait_for("a new gang", partial(other, launcher, name, pid), LIMIT_S)
        assert all(is_gone(pid) for pid in pids)
    assert len(notices(programs)) == 1


def test_a_lasting_fault_of_a_gang_ends_the_run_whichever_of_it_ends_first(programs: Path) -> None:
    with launcher_of(programs) as launcher, pytest.raises(ChildEnded, match="wrong setting"):
        started(launcher, spec(programs, "misled_later", "a", supervised=True, gang="g"))
        launcher.start(spec(programs, "fails", "b", supervised=True, gang="g"))
        launcher.wait_for("anything", lambda: False, LIMIT_S)
    assert not notices(programs)


def test_a_process_that_the_launcher_ends_does_not_start_again(programs: Path) -> None:
    with launcher_of(programs, pause_s=0.1) as launcher:
        pid = started(launcher, spec(programs, "waits", supervised=True))
        os.kill(pid, signal.SIGKILL)
        launcher.wait_for("its end", lambda: "waits" not in launcher.running, LIMIT_S)
        launcher.end(["waits"])
        with pytest.raises(NotReady):
            launcher.wait_for("another life", lambda: "waits" in launcher.running, 0.5)


def test_a_process_that_does_not_end_in_time_is_killed(programs: Path) -> None:
    with launcher_of(programs) as launcher:
        pid = started(launcher, spec(programs, "stubborn", stop_s=0.2))
        launcher.end(["stubborn"])
        assert is_gone(pid)


def test_a_finite_process_is_waited_for(programs: Path) -> None:
    with launcher_of(programs) as launcher:
        launcher.run(spec(programs, "succeeds", finite=True), LIMIT_S)
        assert launcher.running == {}
        with pytest.raises(ChildEnded):
            launcher.run(spec(programs, "fails", finite=True), LIMIT_S)


def test_what_does_not_come_in_time_is_told_with_all_logs(programs: Path) -> None:
    with launcher_of(programs) as launcher:
        started(launcher, spec(programs, "waits"))
        with pytest.raises(NotReady, match=r"(?s)the impossible.*waiting"):
            launcher.wait_for("the impossible", lambda: False, 0.1)


def test_being_asked_to_stop_interrupts_every_wait(programs: Path) -> None:
    stop = Stop()
    with launcher_of(programs, stop) as launcher:
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
