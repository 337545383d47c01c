"""Child processes: started with a log file, asked to end or ended by force.

Used for the embedded broker, the processes of a run and the vLLM server.
"""

import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from os import getpid
from pathlib import Path
from signal import SIGABRT

from seamlessflow.infra.host import share_cores

_TAIL_BYTES = 20_000
_TAIL_LINES = 25

# Runs before the program, in its process: asks the kernel for SIGTERM when the parent is gone,
# however it went. A function run between fork and exec is unsafe beside other threads.
_DIE_WITH_PARENT = """
import ctypes, os, sys
PR_SET_PDEATHSIG, SIGTERM = 1, 15
ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, SIGTERM)
if os.getppid() == int(sys.argv[1]):
    os.execv(sys.argv[2], sys.argv[2:])
"""


class ChildProcess:
    """A started program whose output goes to the end of `log_file`.

    It has its own process group, so Ctrl-C in a terminal reaches it only through this process.
    On Linux it is asked to end when this process is gone, even by `kill -9`.
    """

    def __init__(
        self,
        command: Sequence[str],
        log_file: Path,
        environment: Mapping[str, str] | None = None,
        directory: Path | None = None,
        sockets: Sequence[int] = (),
    ) -> None:
        """Start the program, in this process's environment and directory if none is given.

        It inherits the open `sockets`, given as file descriptors. Raises `OSError`.
        """
        self.log_file = log_file
        self._log_start = log_file.stat().st_size if log_file.exists() else 0
        self._exited = threading.Event()
        started: Future[subprocess.Popen[bytes]] = Future()
        # The kernel watches the thread that forked, not the process: so that thread stays.
        threading.Thread(
            target=self._keep,
            args=(command, environment, directory, sockets, started),
            name=f"keeper of {log_file}",
            daemon=True,
        ).start()
        self._process = started.result()

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    @property
    def exit_status(self) -> int | None:
        """Exit status, or None while it runs. If a signal ended it: minus the signal's number."""
        return self._process.returncode if self._exited.is_set() else None

    @property
    def running(self) -> bool:
        """True until it has ended."""
        return not self._exited.is_set()

    def wait(self, timeout_s: float) -> bool:
        """Return whether it has ended, after at most `timeout_s`."""
        return self._exited.wait(timeout_s)

    def ask_to_end(self) -> None:
        """Send SIGTERM."""
        self._process.terminate()

    def abort(self) -> None:
        """Send SIGABRT: a SeamlessFlow process prints where its threads stand, and ends."""
        self._process.send_signal(SIGABRT)

    def force_to_end(self) -> None:
        """Send SIGKILL and do not wait."""
        self._process.kill()

    def kill(self) -> None:
        """End it by force, and wait until it has ended."""
        self._process.kill()
        self._exited.wait()

    def stop(self, timeout_s: float) -> None:
        """Ask it to end, and kill it if it has not ended after `timeout_s`."""
        self.ask_to_end()
        if not self.wait(timeout_s):
            self.kill()

    def tail(self, lines: int = _TAIL_LINES) -> str:
        """Return the last lines that it logged since it was started."""
        with self.log_file.open("rb") as log:
            length = log.seek(0, 2)
            # A log that was cut since is shorter than it was at the start.
            start = self._log_start if self._log_start <= length else 0
            log.seek(max(start, length - _TAIL_BYTES))
            return "\n".join(log.read().decode(errors="replace").splitlines()[-lines:])

    def _keep(
        self,
        command: Sequence[str],
        environment: Mapping[str, str] | None,
        directory: Path | None,
        sockets: Sequence[int],
        started: Future[subprocess.Popen[bytes]],
    ) -> None:
        share_cores()  # the child inherits this thread's scheduling class
        try:
            with self.log_file.open("ab") as log:
                process = subprocess.Popen(  # nosec B603 # a list of our own, no shell
                    tied(command),
                    env=environment,
                    cwd=directory,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    pass_fds=sockets,
                )
        except OSError as error:
            started.set_exception(error)
            return
        started.set_result(process)
        process.wait()
        self._exited.set()


def tied(command: Sequence[str]) -> list[str]:
    """Return a command that runs `command`, and gets SIGTERM when the thread that starts it ends.

    This works on Linux. On other systems, return the command as it is.
    """
    if not sys.platform.startswith("linux"):
        return list(command)
    return [sys.executable, "-I", "-S", "-c", _DIE_WITH_PARENT, str(getpid()), *command]
