"""One process of a run, as a child of the command line."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from seamlessflow.infra.child import ChildProcess
from seamlessflow.infra.errors import ExitStatus, SeamlessFlowError
from seamlessflow.processes.restarts import description


class ChildEnded(SeamlessFlowError):
    """A process ended too early or with an error; `log_tail` is its log's end."""

    def __init__(
        self, name: str, exit_status: int, log_file: Path, log_tail: str, reason: str = ""
    ) -> None:
        self.name = name
        self.exit_status = exit_status
        self.log_file = log_file
        self.log_tail = log_tail
        self.reason = reason
        why = f", {reason}" if reason else ""
        super().__init__(
            f"{name} {description(exit_status)}{why}\n--- end of {log_file} ---\n{log_tail}"
        )

    def process_status(self, ready: bool) -> ExitStatus:
        """Return the ended process's exit status; `UNEXPECTED` if it has no meaning."""
        says = self.exit_status in (ExitStatus.PASSING, ExitStatus.LASTING)
        return ExitStatus(self.exit_status) if says else ExitStatus.UNEXPECTED


@dataclass(frozen=True)
class ChildSpec:
    """A Python module to start, with its arguments and its whole environment."""

    name: str
    module: str
    environment: Mapping[str, str] = field(repr=False)
    arguments: tuple[str, ...] = ()
    stop_s: float = 15.0
    """Seconds from SIGTERM until it is killed."""
    finite: bool = False
    """True if it may end by itself, with exit status 0."""
    supervised: bool = False
    """True if it is started again when it ends by itself; else the run ends."""
    gang: str = ""
    """Name shared by processes that must start again together; empty: only this one."""

    @property
    def command(self) -> list[str]:
        """Command line. The working directory is not on the path, so that it hides no module."""
        return [sys.executable, "-P", "-m", self.module, *self.arguments]


class Child(ChildProcess):
    """A started process of a run."""

    def __init__(self, spec: ChildSpec, log_file: Path, added: Mapping[str, str]) -> None:
        """Start it, with variables `added` to its environment."""
        self.spec = spec
        super().__init__(spec.command, log_file, {**spec.environment, **added})

    @property
    def failed(self) -> bool:
        """True if it ended by itself, too early or with an error."""
        return not self.running and not (self.spec.finite and self.exit_status == 0)
