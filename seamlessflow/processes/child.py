"""One process of the system, started here as a child of this one.

Its output goes to a log file. It has a session of its own, so Ctrl-C in a terminal reaches it only
through `stop`; on Linux it is asked to end when this process is gone, however it went.
"""

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from os import getpid
from pathlib import Path

from infra.broker.jvm import DIE_WITH_PARENT
from infra.errors import SeamlessFlowError

TAIL_BYTES = 6_000
TAIL_LINES = 25


class ChildEnded(SeamlessFlowError):
    """A process ended that should not have; `log_tail` is the end of its log."""

    def __init__(self, name: str, exit_status: int, log_file: Path, log_tail: str) -> None:
        self.name = name
        self.exit_status = exit_status
        self.log_file = log_file
        self.log_tail = log_tail
        super().__init__(
            f"{name} ended with exit status {exit_status}\n--- end of {log_file} ---\n{log_tail}"
        )


@dataclass(frozen=True)
class ChildSpec:
    """What to start: a Python module with arguments, and its whole environment."""

    name: str
    module: str
    environment: Mapping[str, str]
    arguments: tuple[str, ...] = ()
    stop_s: float = 15.0
    """Seconds it may take to end in order."""
    finite: bool = False
    """Whether it is right for it to come to an end by itself."""


class Child:
    """A started process."""

    def __init__(self, spec: ChildSpec, log_file: Path) -> None:
        self.spec = spec
        self.log_file = log_file
        self._log_start = log_file.stat().st_size if log_file.exists() else 0
        with log_file.open("ab") as log:
            self._process = subprocess.Popen(
                _tied([sys.executable, "-m", spec.module, *spec.arguments]),
                env=dict(spec.environment),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    @property
    def exit_status(self) -> int | None:
        """None while it runs; minus the signal's number if one ended it."""
        return self._process.poll()

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return self.exit_status is None

    def check(self) -> None:
        """Raises `ChildEnded` if it ended and should not have."""
        status = self.exit_status
        if status is not None and not (self.spec.finite and status == 0):
            raise ChildEnded(self.spec.name, status, self.log_file, self.tail())

    def ask_to_end(self) -> None:
        """Sends SIGTERM."""
        self._process.terminate()

    def wait(self, timeout_s: float) -> bool:
        """Whether it has ended, after at most `timeout_s`."""
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return False
        return True

    def kill(self) -> None:
        """Ends it at once."""
        self._process.kill()
        self._process.wait()

    def tail(self) -> str:
        """The end of what it logged since it was started."""
        with self.log_file.open("rb") as log:
            length = log.seek(0, 2)
            log.seek(max(self._log_start, length - TAIL_BYTES))
            return "\n".join(log.read().decode(errors="replace").splitlines()[-TAIL_LINES:])


def _tied(command: list[str]) -> list[str]:
    if not sys.platform.startswith("linux"):
        return command
    return [sys.executable, "-I", "-S", "-c", DIE_WITH_PARENT, str(getpid()), *command]
