"""Foreman in a workplace: runs commands side by side, and lets what they start go on. A program.

`workplace.py` starts it in the sandbox as `python -I -S -c SOURCE`. It imports only the standard
library. It is process 1, so that no command can end it. Each line, in both directions, is a JSON
object:

    in:  {"id": 1, "command": "ls", "directory": "/app", "variables": {}, "stdin": "BASE64",
          "time_s": 10, "most": 1000}
    out: {"id": 1, "status": 0, "outputs": ["BASE64", "BASE64"]}

The status is null if the command's time ran out. A cut output has one byte more than `most`.
"""

import base64
import ctypes
import errno
import json
import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from typing import Any

_PR_SET_DUMPABLE = 4
_CANNOT_BE_STARTED = 126


class _Foreman:
    """Runs commands; a thread waits for each."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._commands: set[int] = set()

    def serve(self, asked: dict[str, Any]) -> None:
        """Run a command and write how it ended."""
        try:
            answer = self._run(asked)
        except OSError as error:
            said = base64.b64encode(str(error).encode()).decode()
            answer = {"status": _CANNOT_BE_STARTED, "outputs": ["", said]}
        line = json.dumps({"id": asked["id"], **answer}).encode() + b"\n"
        with self._lock:
            self._reap()
            sys.stdout.buffer.write(line)
            sys.stdout.buffer.flush()

    def _run(self, asked: dict[str, Any]) -> dict[str, Any]:
        # Files rather than pipes: processes that a command leaves may hold pipes open.
        files = [os.memfd_create(name) for name in ("stdin", "stdout", "stderr")]
        try:
            stdin = base64.b64decode(asked["stdin"])
            if os.pwrite(files[0], stdin, 0) < len(stdin):
                raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
            status = self._status(asked, files)
            outputs = [os.pread(file, asked["most"] + 1, 0) for file in files[1:]]
        finally:
            for file in files:
                os.close(file)
        return {"status": status, "outputs": [base64.b64encode(each).decode() for each in outputs]}

    def _status(self, asked: dict[str, Any], files: list[int]) -> int | None:
        with self._lock:  # so that `_reap` knows it before it can end
            process = subprocess.Popen(  # nosec B603 B607 # the sandbox's own bash, by what is asked
                ["bash", "-c", asked["command"]],
                cwd=asked["directory"],
                env={**os.environ, **asked["variables"]},
                stdin=files[0],
                stdout=files[1],
                stderr=files[2],
                start_new_session=True,
            )
            self._commands.add(process.pid)
        try:
            return process.wait(asked["time_s"])
        except subprocess.TimeoutExpired:
            with suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return None
        finally:
            with self._lock:
                self._commands.discard(process.pid)

    def _reap(self) -> None:
        """Reap processes whose parents ended before them, up to a command of ours."""
        options = os.WEXITED | os.WNOHANG | os.WNOWAIT
        with suppress(ChildProcessError):
            while (ended := os.waitid(os.P_ALL, 0, options)) is not None:
                if ended.si_pid in self._commands:
                    break
                os.waitpid(ended.si_pid, 0)


def main() -> None:
    """Serve until the end of the input."""
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0)  # no command reads or writes its memory
    foreman = _Foreman()
    for line in sys.stdin.buffer:
        threading.Thread(target=foreman.serve, args=(json.loads(line),), daemon=True).start()


if __name__ == "__main__":
    main()
