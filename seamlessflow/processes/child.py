"""One process of a run, as a child of the command line."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from infra.child import ChildProcess
from infra.errors import SeamlessFlowError


class ChildEnded(SeamlessFlowError):
    """A process ended too early or with an error; `log_tail` is the end of its log."""

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
    """A Python module to start, with its arguments and its whole environment."""

    name: str
    module: str
    environment: Mapping[str, str]
    arguments: tuple[str, ...] = ()
    stop_s: float = 15.0
    """Seconds from SIGTERM until it is killed."""
    finite: bool = False
    """True if it may end by itself, with exit status 0."""


class Child(ChildProcess):
    """A started process of a run."""

    def __init__(self, spec: ChildSpec, log_file: Path) -> None:
        self.spec = spec
        command = [sys.executable, "-m", spec.module, *spec.arguments]
        super().__init__(command, log_file, spec.environment)

    def check(self) -> None:
        """Raise `ChildEnded` if it ended too early or with an error."""
        status = self.exit_status
        if status is not None and not (self.spec.finite and status == 0):
            raise ChildEnded(self.spec.name, status, self.log_file, self.tail())
