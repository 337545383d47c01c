"""Commands in a sandbox, with bubblewrap where it works, and without."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import textwrap
import zipfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from seamlessflow.producers.sandbox.isolation import Isolation, isolation_here
from seamlessflow.producers.sandbox.sandbox import (
    Sandbox,
    SandboxFailed,
    SandboxLimits,
    SandboxResult,
    Supervisors,
    run,
)
from tests.waiting import until

WALLED = isolation_here() is Isolation.BUBBLEWRAP
needs_wall = pytest.mark.skipif(not WALLED, reason="bubblewrap is not here, or does not work")
BOTH = [pytest.param(Isolation.BUBBLEWRAP, marks=needs_wall), Isolation.PROCESSES]


@pytest.fixture(params=BOTH, ids=lambda isolation: isolation.value)
def sandbox(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Sandbox]:
    limits = SandboxLimits(time_s=60)
    with Sandbox(limits, isolation=request.param, parent=tmp_path) as made:
        yield made
    assert list(tmp_path.iterdir()) == []


def python(
    sandbox: Sandbox, program: str, limits: SandboxLimits | None = None, *arguments: str
) -> SandboxResult:
    command = [sys.executable, "-I", "-S", sandbox.path("program.py"), *arguments]
    return sandbox.run(command, {"program.py": textwrap.dedent(program)}, limits)


def processes_with(mark: str) -> list[int]:
    """Processes whose command line has a mark."""
    marked = []
    for path in Path("/proc").iterdir():
        try:
            if path.name.isdecimal() and mark.encode() in (path / "cmdline").read_bytes():
                marked.append(int(path.name))
        except OSError:
            continue
    return marked


def test_a_command_has_its_files_and_gives_its_outputs(sandbox: Sandbox) -> None:
    files: dict[str, str | bytes] = {"a/b.txt": "text", "c": b"\xff"}
    ended = sandbox.run(["sh", "-c", "cat a/b.txt c; echo no >&2; echo new > d; exit 3"], files)
    assert (ended.ended, ended.status, ended.left) == ("exited", 3, 0)
    assert (ended.stdout, ended.stderr) == (b"text\xff", b"no\n")
    assert sandbox.read("d") == b"new\n"
    assert sandbox.run(["cat", "d"]).stdout == b"new\n"
    assert sandbox.run(["cat"], stdin="in").stdout == b"in"


def test_a_command_inherits_no_variable(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("API_KEY", "secret")
    assert b"secret" not in sandbox.run(["env"]).stdout


def test_a_program_that_is_not_there_is_said(sandbox: Sandbox) -> None:
    ended = sandbox.run(["no-such-program"])
    assert ended.status != 0
    assert b"no-such-program" in ended.stderr


def test_time_is_limited(sandbox: Sandbox) -> None:
    ended = sandbox.run(["sleep", "1000"], limits=SandboxLimits(time_s=0.3))
    assert (ended.ended, ended.status) == ("time", None)


def test_cpu_time_is_limited(sandbox: Sandbox) -> None:
    ended = python(sandbox, "while True: pass", SandboxLimits(time_s=300, cpu_s=1))
    assert ended.ended == "exited"
    assert ended.status in (-signal.SIGXCPU, -signal.SIGKILL, 128 + signal.SIGXCPU, 137)


def test_endless_output_is_cut(sandbox: Sandbox) -> None:
    ended = sandbox.run(["yes"], limits=SandboxLimits(time_s=60, output_bytes=10_000))
    assert ended.ended == "output"
    assert ended.stdout == (b"y\n" * 5_000)


def test_memory_of_a_process_is_limited(sandbox: Sandbox) -> None:
    program = "data = bytearray(600 << 20); print(len(data))"
    ended = python(sandbox, program, SandboxLimits(time_s=60, memory_bytes=200 << 20))
    assert b"MemoryError" in ended.stderr or ended.ended == "memory"


def test_memory_of_all_processes_is_limited(sandbox: Sandbox) -> None:
    program = """
        import os, time
        for _ in range(4):
            os.fork()
        data = b"x" * (20 << 20)
        time.sleep(1000)
    """
    ended = python(sandbox, program, SandboxLimits(time_s=60, memory_bytes=150 << 20))
    assert ended.ended == "memory"


def test_a_fork_bomb_is_ended_with_all_its_processes(sandbox: Sandbox) -> None:
    mark = f"bomb-{os.getpid()}-{sandbox.isolation.value}"
    program = """
        import os, time
        for _ in range(8):
            os.fork()
        time.sleep(1000)
    """
    ended = python(sandbox, program, SandboxLimits(time_s=60, processes=40), mark)
    refused = b"BlockingIOError" in ended.stderr  # by the kernel, unless this is root
    assert ended.ended == "processes" or refused
    assert ended.left == 0
    assert processes_with(mark) == []


def test_a_process_in_a_session_of_its_own_does_not_outlive_the_command(sandbox: Sandbox) -> None:
    mark = f"daemon-{os.getpid()}-{sandbox.isolation.value}"
    program = """
        import os, time
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                os.setsid()
                print("up", flush=True)
                time.sleep(1000)
            os._exit(0)
        os.wait()
    """
    ended = python(sandbox, program, None, mark)
    assert ended.ended == "exited"
    assert processes_with(mark) == []


def test_zombies_do_not_stay(sandbox: Sandbox) -> None:
    program = """
        import os, time
        for _ in range(20):
            if os.fork() == 0:
                os._exit(0)
        time.sleep(0.2)
    """
    children = set(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())
    assert python(sandbox, program).ended == "exited"
    after = set(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())
    assert after <= children


def test_a_listener_ends_with_its_command(sandbox: Sandbox) -> None:
    program = """
        import os, socket, time
        server = socket.create_server(("127.0.0.1", 0))
        print(server.getsockname()[1], flush=True)
        if os.fork() == 0:
            os.setsid()
            time.sleep(1000)
    """
    port = int(python(sandbox, program).stdout)
    with socket.socket() as client:
        assert client.connect_ex(("127.0.0.1", port)) != 0


def test_a_link_out_is_neither_read_nor_written_through(sandbox: Sandbox, tmp_path: Path) -> None:
    outside = tmp_path.parent / f"{tmp_path.name}-outside"
    outside.mkdir()
    secret = outside / "secret"
    secret.write_text("secret")
    sandbox.run(["sh", "-c", f"ln -s {secret} link; ln -s {outside} folder; mkfifo pipe"])
    for name in ("link", "folder/secret", "pipe", "../../secret", "/etc/passwd"):
        with pytest.raises((OSError, ValueError)):
            sandbox.read(name)
    for name in ("link", "folder/new", "../new", "/tmp/new"):
        with pytest.raises((OSError, ValueError)):
            sandbox.write({name: "changed"})
    assert [path.name for path in outside.iterdir()] == ["secret"]
    assert secret.read_text() == "secret"


@needs_wall
def test_bubblewrap_keeps_a_command_in_its_directory(tmp_path: Path) -> None:
    (tmp_path / "outside").write_text("secret")
    with Sandbox(isolation=Isolation.BUBBLEWRAP) as sandbox:
        for target in ("/usr/new", "/etc/new", "/new", "../../new", f"{tmp_path}/new"):
            sandbox.run(["sh", "-c", f"echo x > {target}"])
            assert not Path(target).exists()
        assert sandbox.run(["cat", f"{tmp_path}/outside"]).status != 0
        assert sandbox.run(["sh", "-c", "echo x > /tmp/x && cat /tmp/x"]).stdout == b"x\n"
        assert sandbox.run(["sh", "-c", "kill -9 -1; ls /proc | grep -c '^[0-9]'"]).left == 0


@needs_wall
@pytest.mark.parametrize("network", [False, True])
def test_bubblewrap_has_no_network_unless_asked(network: bool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        program = f"import socket; socket.create_connection(('127.0.0.1', {port}), 5)"
        limits = SandboxLimits(time_s=60, network=network)
        with Sandbox(limits, isolation=Isolation.BUBBLEWRAP) as sandbox:
            ended = sandbox.run([sys.executable, "-I", "-S", "-c", program])
    assert (ended.status == 0) == network


def test_a_result_says_what_its_isolation_does_not_prevent(sandbox: Sandbox) -> None:
    ended = sandbox.run(["true"])
    assert ended.isolation is sandbox.isolation
    assert ("the network" in ended.not_prevented) == (ended.isolation is Isolation.PROCESSES)


def test_a_killed_parent_leaves_no_process_and_no_directory(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    rest = f"{os.getpid()}-{sandbox.isolation.value}"
    mark = f"orphan-{rest}"  # of the command alone
    program = f"""
import sys
from pathlib import Path
from seamlessflow.producers.sandbox.isolation import Isolation
from seamlessflow.producers.sandbox.sandbox import Sandbox, SandboxLimits
isolation = Isolation({sandbox.isolation.value!r})
box = Sandbox(SandboxLimits(time_s=500), isolation, parent=Path(sys.argv[1]))
box.run(["sh", "-c", "sleep 1000; true orphan-" + sys.argv[2]])
"""
    folder = tmp_path.parent / f"{tmp_path.name}-orphaned"
    folder.mkdir()
    parent = subprocess.Popen([sys.executable, "-c", program, str(folder), rest])
    try:
        until(lambda: processes_with(mark) != [])
    finally:
        parent.kill()
        parent.wait()
    until(lambda: processes_with(mark) == [])
    until(lambda: list(folder.iterdir()) == [])


def test_supervisors_started_ahead_are_counted_and_end() -> None:
    with closing(Supervisors(ahead=2)) as supervisors:
        assert supervisors.counts == (2, 0)
        with Sandbox(supervisors=supervisors) as sandbox:
            assert sandbox.run(["echo", "x"]).stdout == b"x\n"
        assert supervisors.counts == (2, 0)
    assert supervisors.counts == (0, 0)


def test_a_supervisor_that_ends_is_no_fault_of_the_command(tmp_path: Path) -> None:
    with (
        Sandbox(isolation=Isolation.PROCESSES, parent=tmp_path) as sandbox,
        pytest.raises(SandboxFailed),
    ):
        sandbox.run(["sh", "-c", "kill -9 $PPID"])


def test_a_command_alone_has_a_directory_of_its_own() -> None:
    ended = run(["sh", "-c", "pwd; cat a"], {"a": "x"})
    assert ended.stdout.endswith(b"\nx")
    if ended.isolation is Isolation.PROCESSES:
        assert not Path(ended.stdout.decode().splitlines()[0]).exists()


@pytest.mark.parametrize("form", ["directory", "gztar", "zip"])
def test_a_sandbox_begins_as_a_copy_of_a_directory_or_an_archive(
    sandbox: Sandbox, tmp_path_factory: pytest.TempPathFactory, form: str
) -> None:
    source = tmp_path_factory.mktemp("source")
    (source / "a").mkdir()
    (source / "a" / "b").write_text("text")
    archive = str(tmp_path_factory.mktemp("packed") / "repository")
    packed = source if form == "directory" else Path(shutil.make_archive(archive, form, source))
    sandbox.fill(packed)
    assert sandbox.run(["sh", "-c", "cat a/b; echo other > a/b"]).stdout == b"text"
    assert (source / "a" / "b").read_text() == "text"


@pytest.mark.parametrize("form", ["gztar", "zip"])
def test_an_archive_keeps_names_with_dots_and_programs(
    sandbox: Sandbox, tmp_path_factory: pytest.TempPathFactory, form: str
) -> None:
    source = tmp_path_factory.mktemp("source")
    (source / "notes..txt").write_text("text")
    (source / "say").write_text("#!/bin/sh\ncat notes..txt")
    (source / "say").chmod(0o755)
    archive = str(tmp_path_factory.mktemp("packed") / "repository")
    sandbox.fill(Path(shutil.make_archive(archive, form, source)))
    assert sandbox.run(["./say"]).stdout == b"text"


def test_an_archive_that_leads_outside_is_refused(
    sandbox: Sandbox, tmp_path_factory: pytest.TempPathFactory
) -> None:
    packed = tmp_path_factory.mktemp("packed")
    with tarfile.open(packed / "bad.tar", "w") as tar:
        tar.addfile(tarfile.TarInfo("../outside"))
    with pytest.raises(tarfile.OutsideDestinationError):
        sandbox.fill(packed / "bad.tar")
    with zipfile.ZipFile(packed / "bad.zip", "w") as zipped:
        zipped.writestr("../outside", "text")
    with pytest.raises(ValueError, match="outside"):
        sandbox.fill(packed / "bad.zip")


@pytest.mark.parametrize(
    ("left", "laid"),
    [
        ("echo theirs > check", True),
        ("ln -s /etc/passwd check", False),
        ("mkdir check", False),
        ("mkfifo check", False),
        ("rm -r sub; ln -s /tmp sub", False),
    ],
)
def test_files_are_laid_over_those_of_a_command_and_through_no_link(
    sandbox: Sandbox, tmp_path_factory: pytest.TempPathFactory, left: str, laid: bool
) -> None:
    source = tmp_path_factory.mktemp("source")
    (source / "sub").mkdir()
    (source / "sub" / "run").write_text("#!/bin/sh\necho run")
    (source / "sub" / "run").chmod(0o755)
    (source / "check").write_text("ours")
    sandbox.run(["sh", "-c", f"mkdir sub; {left}"])
    assert sandbox.lay(source) == laid
    if laid:
        ended = sandbox.run(["sh", "-c", "cat check; sub/run"])
        assert ended.stdout == b"oursrun\n"


def test_programs_of_a_prefix_come_first(tmp_path: Path) -> None:
    program = tmp_path / "prefix" / "bin" / "cat"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\necho mine")
    program.chmod(0o755)
    with Sandbox(prefixes=[str(tmp_path / "prefix")]) as sandbox:
        assert sandbox.run(["cat"]).stdout == b"mine\n"
