"""Supervisor for a command: limits, output, and the end of all that it started. A program.

`sandbox.py` starts it as `python -I -S supervisor.py`. It imports only the standard library, so
that its start takes few milliseconds. It reads a job, a JSON object on one line. It writes a head,
a JSON object on one line, and then both outputs.

Processes whose parent ends become the supervisor's children. So it finds what a command leaves, in
whatever session or group. If its own parent is gone, even by `kill -9`, it ends them all and
removes the directory.
"""

import ctypes
import json
import os
import resource
import selectors
import shutil
import signal
import sys
import time
from contextlib import suppress
from typing import Any

_PR_SET_CHILD_SUBREAPER = 36
_TICK_S = 0.02
_LOOK_S = 0.05
"""Seconds between two counts of processes and memory."""
_KILLING_S = 20.0
_CHUNK = 1 << 16
_PAGE = os.sysconf("SC_PAGE_SIZE")
_FILES = 256
_NOT_STARTED = 127


def main() -> None:
    """Do one job."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    line = sys.stdin.buffer.readline()
    if not line:
        return
    job = json.loads(line)
    command = _WatchedCommand(job)
    orphaned = True
    try:
        orphaned = command.watch()
    finally:
        left = end_all()
        if orphaned:
            shutil.rmtree(job["scratch"], ignore_errors=True)
    if not orphaned:
        command.drain()
        head = {
            "status": command.status if command.ended == "exited" else None,
            "ended": command.ended,
            "seconds": time.monotonic() - command.began,
            "left": left,
            "sizes": [len(output) for output in command.outputs],
        }
        sys.stdout.buffer.write(json.dumps(head).encode() + b"\n")
        for output in command.outputs:
            sys.stdout.buffer.write(output)
        sys.stdout.buffer.flush()


class _WatchedCommand:
    """A started command, with what it has written."""

    def __init__(self, job: dict[str, Any]) -> None:
        self._job = job
        self.began = time.monotonic()
        self.ended = ""
        self._next_look = 0.0
        self.status: int | None = None
        pipes = [os.pipe(), os.pipe()]
        self.outputs = [bytearray(), bytearray()]
        self._pid = os.fork()
        if not self._pid:
            _become(job, [write for _, write in pipes])
        if job["channel"] is not None:
            os.close(job["channel"])  # so that the other side sees the command end
        self._selector = selectors.DefaultSelector()
        for number, (read, write) in enumerate(pipes):
            os.close(write)
            os.set_blocking(read, False)
            self._selector.register(read, selectors.EVENT_READ, number)
        self._selector.register(0, selectors.EVENT_READ, None)

    def watch(self) -> bool:
        """Wait until the command ends or exceeds a limit; return True if the parent is gone."""
        while not self.ended:
            for key, _ in self._selector.select(_TICK_S):
                if key.data is None:
                    if not os.read(0, _CHUNK):
                        return True
                else:
                    self._read(key.fd, key.data)
            self._check()
        return False

    def drain(self) -> None:
        """Read the rest of the outputs, once all processes have ended."""
        for key in list(self._selector.get_map().values()):
            while key.data is not None and self._read(key.fd, key.data):
                pass

    def _read(self, stream: int, number: int) -> bool:
        """Read from an output; return False if nothing more is there."""
        try:
            chunk = os.read(stream, _CHUNK)
        except BlockingIOError:
            return False
        room = self._job["output_bytes"] - len(self.outputs[0]) - len(self.outputs[1])
        self.outputs[number] += chunk[: max(0, room)]
        if len(chunk) > room and self.ended in ("", "exited"):
            self.ended = "output"
        if not chunk:
            self._selector.unregister(stream)
        return bool(chunk)

    def _check(self) -> None:
        """Set `ended` if the command has ended, or exceeds a limit."""
        for pid, status in _reaped():
            if pid == self._pid:
                self.status = os.waitstatus_to_exitcode(status)
                self.ended = self.ended or "exited"
        if not self.ended and time.monotonic() - self.began > self._job["time_s"]:
            self.ended = "time"
        if not self.ended and time.monotonic() > self._next_look:
            self._next_look = time.monotonic() + _LOOK_S
            living = descendants()
            if len(living) > self._job["processes"] + self._job["own_processes"]:
                self.ended = "processes"
            elif sum(map(_resident, living)) > self._job["memory_bytes"]:
                self.ended = "memory"


def _become(job: dict[str, Any], outputs: list[int]) -> None:
    """Become the command, in the child; never returns."""
    try:
        os.setsid()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        nothing = os.open(os.devnull, os.O_RDONLY)
        if job["stdin"]:
            read, write = os.pipe()
            os.write(write, job["stdin"].encode())
            os.close(write)
            nothing = read
        streams = [nothing, *outputs]
        if job["channel"] is not None:
            streams[:2] = [job["channel"]] * 2
        for target, stream in enumerate(streams):
            os.dup2(stream, target)
        os.closerange(3, 1 << 16)
        for limit, value in _limits(job):
            _, hard = resource.getrlimit(limit)
            most = min((value, hard), key=lambda most: most % (1 << 64))  # infinity is -1
            resource.setrlimit(limit, (most, most))
        os.chdir(job["directory"])
        os.execvpe(job["command"][0], job["command"], job["environment"])  # nosec B606 # the job
    except BaseException as error:
        os.write(2, f"{job['command'][0]} cannot be started: {error}\n".encode())
    finally:
        os._exit(_NOT_STARTED)


def _limits(job: dict[str, Any]) -> list[tuple[int, int]]:
    cpu_s = resource.RLIM_INFINITY if job["cpu_s"] is None else job["cpu_s"]
    return [
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_CPU, cpu_s),
        (resource.RLIMIT_NOFILE, _FILES),
        (resource.RLIMIT_FSIZE, job["file_bytes"]),
        (resource.RLIMIT_DATA, job["memory_bytes"]),
        # The kernel counts all of a user's processes, and none of root's.
        (resource.RLIMIT_NPROC, _processes_of_user() + job["processes"] + job["own_processes"]),
    ]


def end_all() -> int:
    """End all that was started; return how many processes could not be ended."""
    deadline = time.monotonic() + _KILLING_S
    while living := descendants():
        for wanted in (signal.SIGSTOP, signal.SIGKILL):  # a stopped process starts no others
            for pid in living:
                with suppress(OSError):
                    os.kill(pid, wanted)
        for _ in _reaped():
            pass
        if time.monotonic() > deadline:
            return len(living)
    for _ in _reaped():
        pass
    return 0


def descendants() -> list[int]:
    """Return the processes below this one that have not ended."""
    children: dict[int, list[int]] = {}
    ended = set()
    for name in os.listdir("/proc"):
        if name.isdecimal():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    state, parent = file.read().rpartition(b")")[2].split()[:2]
            except OSError:
                continue
            children.setdefault(int(parent), []).append(int(name))
            if state in (b"Z", b"X"):
                ended.add(int(name))
    below = []
    above = [os.getpid()]
    while above:
        above = [child for pid in above for child in children.get(pid, ())]
        below += above
    return [pid for pid in below if pid not in ended]


def _reaped() -> list[tuple[int, int]]:
    """Reap the processes that have ended, and return them with their statuses."""
    reaped: list[tuple[int, int]] = []
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return reaped
        if not pid:
            return reaped
        reaped.append((pid, status))


def _resident(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:
            resident, shared = map(int, file.read().split()[1:3])
    except (OSError, ValueError):
        return 0
    return (resident - shared) * _PAGE


def _processes_of_user() -> int:
    user = os.getuid()
    count = 0
    for name in os.listdir("/proc"):
        with suppress(OSError):
            count += name.isdecimal() and os.stat(f"/proc/{name}").st_uid == user
    return count


if __name__ == "__main__":
    main()
