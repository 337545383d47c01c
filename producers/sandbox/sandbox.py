"""Sandbox for agents' and judges' commands, such as tests for code that a model wrote.

`run` makes a directory for one command. A `Sandbox` keeps its directory from command to command, as
an agent's session needs. A supervisor process watches each command. If this process ends, the
supervisor ends all that the command started, and then itself. Supervisors may be started ahead.
"""

import json
import os
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from seamlessflow.infra.disk import ScratchDirectory
from seamlessflow.infra.errors import SeamlessFlowError
from seamlessflow.producers.sandbox.directory import (
    copy_tree,
    lay_files,
    read_file,
    write_file,
)
from seamlessflow.producers.sandbox.isolation import (
    INSIDE,
    Isolation,
    environment,
    isolation_here,
    wrapped,
)

_SUPERVISOR = Path(__file__).with_name("supervisor.py")
_PATIENCE_S = 120.0
"""Seconds after a command's time limit within which its supervisor must have ended all."""
_OWN_PROCESSES = {Isolation.BUBBLEWRAP: 2, Isolation.PROCESSES: 0}
_LARGEST_STDIN = 4_096


@dataclass(frozen=True, slots=True)
class SandboxLimits:
    """Limits for a command and for all that it starts."""

    time_s: float = 10.0
    """Seconds by the wall clock."""
    cpu_s: int | None = None
    """Seconds for each process; None: only the wall clock limits it."""
    memory_bytes: int = 1 << 30
    """For each process, and for all together."""
    processes: int = 32
    output_bytes: int = 1 << 20
    """For both outputs together."""
    file_bytes: int = 64 << 20
    """For each file."""
    network: bool = False


@dataclass(frozen=True, slots=True)
class SandboxResult:
    """A command's end, with its outputs."""

    status: int | None
    """Exit status; minus the signal's number if one ended it; None if a limit did."""
    ended: str
    """`exited`, or the limit that it exceeded: `time`, `memory`, `processes` or `output`."""
    stdout: bytes
    stderr: bytes
    seconds: float
    isolation: Isolation
    not_prevented: Sequence[str]
    """Acts that this isolation cannot prevent."""
    left: int = 0
    """Processes that could not be ended; 0 unless the machine has a fault."""


class SandboxFailed(SeamlessFlowError):
    """The sandbox itself failed; this says nothing about the command."""

    lasting = False

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"the sandbox failed: {reason}")


class Supervisors:
    """Supervisor processes: those that wait for a command, started ahead, and those at work."""

    def __init__(self, ahead: int = 0) -> None:
        self._ahead = ahead
        self._waiting: deque[subprocess.Popen[bytes]] = deque()
        self._lock = threading.Lock()
        self._working = 0
        self._fill()

    @property
    def counts(self) -> tuple[int, int]:
        """Return how many wait, and how many are at work."""
        with self._lock:
            return len(self._waiting), self._working

    def work(self, job: bytes, patience_s: float, channel: int | None = None) -> bytes:
        """Return what a supervisor wrote about a job. Raises `SandboxFailed`.

        `channel`: a socket that the job's supervisor gets; it is closed here.
        """
        with self._lock:
            ahead = self._waiting and channel is None
            supervisor = self._waiting.popleft() if ahead else _supervisor(channel)
            self._working += 1
        try:
            return _reply(supervisor, job, patience_s)
        finally:
            with self._lock:
                self._working -= 1
            self._fill()

    def close(self) -> None:
        """End the supervisors that wait."""
        with self._lock:
            self._ahead = 0
            waiting = list(self._waiting)
            self._waiting.clear()
        for supervisor in waiting:
            supervisor.communicate()

    def _fill(self) -> None:
        with self._lock:
            while len(self._waiting) < self._ahead:
                self._waiting.append(_supervisor())


_none_ahead = Supervisors()


class Sandbox:
    """Directory for commands, removed at the end; if this process is killed, by a supervisor."""

    def __init__(
        self,
        limits: SandboxLimits | None = None,
        isolation: Isolation | None = None,
        supervisors: Supervisors | None = None,
        parent: Path | None = None,
        prefixes: Sequence[str] = (),
        folders: Sequence[str] = (),
    ) -> None:
        """`isolation`: by default the best on this machine. `parent`: the folder to make it in.

        `prefixes`: places that a command may read, such as virtual environments; their `bin` comes
        first on its path. `folders`: paths of further directories, which only bubblewrap can give.
        Raises `SandboxFailed` for folders without bubblewrap.
        """
        self.limits = limits or SandboxLimits()
        self.isolation = isolation or isolation_here()
        self._supervisors = supervisors or _none_ahead
        self._prefixes = prefixes
        if folders and self.isolation is not Isolation.BUBBLEWRAP:
            raise SandboxFailed("folders of its own need bubblewrap, which is not here")
        self._scratch = ScratchDirectory(parent)
        self.directory = self._scratch.path / "files"
        self._folders = {path: self._scratch.path / f"folder-{n}" for n, path in enumerate(folders)}
        for folder in (self.directory, *self._folders.values()):
            folder.mkdir()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Remove the directory."""
        self._scratch.close()

    def path(self, name: str) -> str:
        """Return a file's path as a command sees it."""
        inside = INSIDE if self.isolation is Isolation.BUBBLEWRAP else str(self.directory)
        return f"{inside}/{name}"

    def write(self, files: Mapping[str, str | bytes]) -> None:
        """Write files by their names in the directory. Raises `ValueError` or `OSError`."""
        for name, content in files.items():
            write_file(
                self.directory, name, content.encode() if isinstance(content, str) else content
            )

    def fill(self, source: Path) -> None:
        """Copy a directory or unpack an archive into it, before any command. Raises `OSError`."""
        copy_tree(source, self.directory)

    def lay(self, source: Path) -> bool:
        """Write all files in `source` over those with the same names. Raises `OSError`.

        Return False if a command left a link or a directory in the way.
        """
        return lay_files(source, self.directory)

    def read(self, name: str, most: int = 1 << 20) -> bytes:
        """Return a file in the directory. Raises `ValueError` or `OSError`."""
        return read_file(self.directory, name, most)

    def run(
        self,
        command: Sequence[str],
        files: Mapping[str, str | bytes] | None = None,
        limits: SandboxLimits | None = None,
        stdin: str = "",
        channel: int | None = None,
    ) -> SandboxResult:
        """Run a command in the directory, end all that it started, and return its end.

        `channel`: a socket that is its input and output, instead of `stdin`; it is closed here.
        Raises `SandboxFailed`, which is not the command's fault, and what `write` raises.
        """
        self.write(files or {})
        limits = limits or self.limits
        job = self._job(command, limits, stdin, channel)
        reply = self._supervisors.work(job, limits.time_s + _PATIENCE_S, channel)
        head, _, outputs = reply.partition(b"\n")
        try:
            ended = json.loads(head)
        except ValueError as error:
            raise SandboxFailed("its supervisor ended without a word") from error
        size = ended["sizes"][0]
        return SandboxResult(
            status=ended["status"],
            ended=ended["ended"],
            stdout=outputs[:size],
            stderr=outputs[size:],
            seconds=ended["seconds"],
            isolation=self.isolation,
            not_prevented=self.isolation.not_prevented,
            left=ended["left"],
        )

    def _job(
        self, command: Sequence[str], limits: SandboxLimits, stdin: str, channel: int | None
    ) -> bytes:
        if len(stdin.encode()) > _LARGEST_STDIN:
            raise ValueError(f"stdin takes {_LARGEST_STDIN:,} bytes: write a file")
        if self.isolation is Isolation.BUBBLEWRAP:
            command = wrapped(
                command,
                self.directory,
                limits.network,
                self._prefixes,
                self._folders,
                first=channel is not None,
            )
        job = {
            "command": list(command),
            "directory": str(self.directory),
            "scratch": str(self._scratch.path),
            "environment": environment(self.isolation, self.directory, self._prefixes),
            "stdin": stdin,
            "channel": channel,
            "time_s": limits.time_s,
            "cpu_s": limits.cpu_s,
            "memory_bytes": limits.memory_bytes,
            "processes": limits.processes,
            "own_processes": _OWN_PROCESSES[self.isolation],
            "output_bytes": limits.output_bytes,
            "file_bytes": limits.file_bytes,
        }
        return json.dumps(job).encode() + b"\n"


def run(
    command: Sequence[str],
    files: Mapping[str, str | bytes] | None = None,
    limits: SandboxLimits | None = None,
) -> SandboxResult:
    """Run a command in a new directory and return its end. Raises what `Sandbox.run` raises."""
    with Sandbox(limits) as sandbox:
        return sandbox.run(command, files)


def _supervisor(channel: int | None = None) -> subprocess.Popen[bytes]:
    passed = () if channel is None else (channel,)
    try:
        return subprocess.Popen(  # nosec B603 # a list, no shell
            [sys.executable, "-I", "-S", str(_SUPERVISOR)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            pass_fds=passed,
        )
    finally:
        for number in passed:
            os.close(number)


def _reply(supervisor: subprocess.Popen[bytes], job: bytes, patience_s: float) -> bytes:
    """Return all that a supervisor writes. Its input stays open: closing it ends the command."""
    if supervisor.stdin is None or supervisor.stdout is None:
        raise SandboxFailed("a supervisor without pipes")
    watch = threading.Timer(patience_s, supervisor.kill)
    watch.start()
    try:
        supervisor.stdin.write(job)
        supervisor.stdin.flush()
        return supervisor.stdout.read()
    except BrokenPipeError as error:
        raise SandboxFailed("its supervisor has ended") from error
    finally:
        watch.cancel()
        supervisor.stdin.close()
        supervisor.stdout.close()
        supervisor.wait()
