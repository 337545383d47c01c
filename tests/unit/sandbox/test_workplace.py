"""Commands in a workplace, whose processes and folders stay."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from seamlessflow.producers.sandbox.isolation import Isolation, isolation_here
from seamlessflow.producers.sandbox.sandbox import Sandbox, SandboxFailed, SandboxLimits
from seamlessflow.producers.sandbox.workplace import Workplace
from tests.waiting import until

WALLED = isolation_here() is Isolation.BUBBLEWRAP
needs_wall = pytest.mark.skipif(not WALLED, reason="bubblewrap is not here, or does not work")
LIMITS = SandboxLimits(time_s=30)


@pytest.fixture
def workplace(tmp_path: Path) -> Iterator[Workplace]:
    with closing(Workplace(["/app", "/logs/agent"], LIMITS, parent=tmp_path)) as made:
        yield made
    assert list(tmp_path.iterdir()) == []


def marked(mark: str) -> list[int]:
    """Return the processes of this machine with a word in their command line."""
    lines = subprocess.run(["ps", "-eo", "pid=,args="], capture_output=True, text=True).stdout
    rows = (line.split(None, 1) for line in lines.splitlines())
    return [int(pid) for pid, line in rows if mark in line]


@needs_wall
def test_a_command_gives_its_status_and_outputs(workplace: Workplace) -> None:
    command = 'cat; echo "$NAME" >&2; pwd; exit 3'
    ended = workplace.run(command, "/app", {"NAME": "x"}, stdin=b"\xff\n")
    assert (ended.status, ended.stdout, ended.stderr, ended.cut) == (
        3,
        b"\xff\n/app\n",
        b"x\n",
        False,
    )
    assert workplace.run("kill -9 $$").status == -signal.SIGKILL


@needs_wall
def test_folders_and_processes_stay_from_command_to_command(workplace: Workplace) -> None:
    program = (
        "import socket; s = socket.create_server(('127.0.0.1', 8000));"
        " open('/app/up', 'w').close(); s.accept()[0].sendall(b'hello')"
    )
    server = f'{sys.executable} -I -S -c "{program}"'
    assert workplace.run(f"echo a > /logs/agent/b; echo c > /tmp/d; {server} &").status == 0
    asked = (
        "cat /logs/agent/b /tmp/d; until test -e /app/up; do :; done; cat < /dev/tcp/127.0.0.1/8000"
    )
    assert workplace.run(asked).stdout == b"a\nc\nhello"


@needs_wall
@pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not here")
def test_a_terminal_goes_on_from_command_to_command(workplace: Workplace) -> None:
    assert workplace.run("tmux new-session -d -s a -x 80 -y 20 bash").status == 0
    assert workplace.run("tmux send-keys -t a 'X=5; echo $((X + 1)) > /app/six' Enter").status == 0
    assert workplace.run("until test -s /app/six; do :; done; cat /app/six").stdout == b"6\n"
    assert b"echo $((X + 1))" in workplace.run("tmux capture-pane -p -t a").stdout


@needs_wall
def test_a_command_beyond_its_time_ends_alone(workplace: Workplace) -> None:
    workplace.run("sleep 1000 & echo $! > /app/pid")
    assert workplace.run("echo begun; sleep 1000", time_s=0.3).status is None
    assert workplace.run("kill -0 $(cat /app/pid)").status == 0


@needs_wall
def test_an_output_beyond_what_was_asked_for_is_cut(workplace: Workplace) -> None:
    ended = workplace.run("echo 12345", most=3)
    assert (ended.stdout, ended.cut) == (b"123", True)
    assert not workplace.run("echo -n 123", most=3).cut


@needs_wall
def test_no_command_ends_or_reads_what_runs_the_commands(workplace: Workplace) -> None:
    workplace.run("kill -9 1; kill -9 -1")
    looked = workplace.run("cat /proc/1/environ; head -c 1 /proc/1/mem; ls -l /proc/1/fd")
    assert looked.status != 0
    assert workplace.run("rm -rf /tmp /app/*; echo still here").stdout == b"still here\n"
    assert workplace.run("true", "/nowhere").status == 126


@needs_wall
def test_commands_run_side_by_side(workplace: Workplace) -> None:
    waiting = threading.Thread(
        target=workplace.run, args=("until test -e /app/go; do sleep 0.01; done",)
    )
    waiting.start()
    assert workplace.run("touch /app/go").status == 0
    waiting.join(60)
    assert not waiting.is_alive()


@needs_wall
def test_processes_that_lost_their_parents_do_not_stay_as_zombies(workplace: Workplace) -> None:
    workplace.run("for i in 1 2 3 4 5; do (true & true); done")
    counted = "cat /proc/[0-9]*/stat 2>/dev/null | grep -c ' Z '"
    until(lambda: workplace.run(counted).stdout.strip() == b"0", "no zombie")


@needs_wall
def test_beyond_a_limit_all_ends_and_the_reason_is_said(tmp_path: Path) -> None:
    limits = SandboxLimits(time_s=60, processes=10)
    with closing(Workplace(limits=limits, parent=tmp_path)) as workplace:
        with pytest.raises(SandboxFailed, match="beyond its limit of processes"):
            workplace.run("for i in $(seq 30); do sleep 1000 & done; wait")
        with pytest.raises(SandboxFailed, match="processes"):
            workplace.run("true")
    assert list(tmp_path.iterdir()) == []


@needs_wall
def test_it_has_no_network_and_no_variable_of_this_process(
    workplace: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("API_KEY", "secret")
    assert b"secret" not in workplace.run("env; cat /proc/*/environ").stdout
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert workplace.run(f"cat < /dev/tcp/127.0.0.1/{port}").status != 0


@needs_wall
def test_at_the_end_nothing_is_left(tmp_path: Path) -> None:
    mark = f"workplace-{os.getpid()}"
    with closing(Workplace(limits=LIMITS, parent=tmp_path)) as workplace:
        workplace.run(f"setsid bash -c 'sleep 1000; true {mark}' &")
        until(lambda: marked(mark) != [], "the process")
    assert marked(mark) == []
    assert list(tmp_path.iterdir()) == []


@needs_wall
def test_a_killed_parent_leaves_no_process_and_no_folder(tmp_path: Path) -> None:
    mark = f"orphan-{os.getpid()}"
    program = """
import sys
from pathlib import Path
from seamlessflow.producers.sandbox.workplace import Workplace
workplace = Workplace(["/app"], parent=Path(sys.argv[1]))
workplace.run("setsid bash -c 'sleep 1000; true orphan-" + sys.argv[2] + "' &")
workplace.run("sleep 1000")
"""
    command = [sys.executable, "-c", program, str(tmp_path), str(os.getpid())]
    parent = subprocess.Popen(command)
    try:
        until(lambda: marked(mark) != [], "the process")
    finally:
        parent.kill()
        parent.wait()
    until(lambda: marked(mark) == [], "its end")
    until(lambda: list(tmp_path.iterdir()) == [], "an empty folder")


def test_folders_of_its_own_are_refused_without_bubblewrap(tmp_path: Path) -> None:
    with pytest.raises(SandboxFailed, match="bubblewrap"):
        Sandbox(isolation=Isolation.PROCESSES, parent=tmp_path, folders=["/app"])
    assert list(tmp_path.iterdir()) == []
