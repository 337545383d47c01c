"""A trainer and its training processes, as processes of their own."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Self

from tests.builders.trainer.scripted_scheduler import TIMEOUT_S


class TrainerProcesses:
    """All of them; the further environments are those of the workers that train.

    What they write to standard error goes to files: a pipe that nobody reads would hold them up.
    """

    def __init__(
        self, environment: Mapping[str, str], workers: Sequence[Mapping[str, str]] = ({},)
    ) -> None:
        self._environment = {**os.environ, **environment}
        self._directory = TemporaryDirectory()
        self._all: list[subprocess.Popen[bytes]] = []
        self._start("seamlessflow.trainer", {})
        for worker in workers:
            self.start(worker)

    def start(self, worker: Mapping[str, str]) -> None:
        """Start the training process of one more worker."""
        self._start("seamlessflow.trainer.ranks", worker)

    def kill(self, number: int = 0) -> list[int]:
        """Kill the trainer, or the process with this number; return the status of each other."""
        self._all[number].send_signal(signal.SIGKILL)
        statuses = self.wait()
        return statuses[:number] + statuses[number + 1 :]

    def pid(self, number: int) -> int:
        """Return the process id of the trainer (0) or of the process with this number."""
        return self._all[number].pid

    def kill_further_rank(self, number: int) -> list[int]:
        """Kill a further rank of the training process with this number; return all statuses."""
        kill_further_rank(self._all[number].pid)
        return self.wait()

    def ask_to_end(self) -> list[tuple[int, str]]:
        """Ask all to end; return the status of each, and what it wrote to standard error."""
        for process in self._all:
            process.send_signal(signal.SIGTERM)
        return [(status, self.said(number)) for number, status in enumerate(self.wait())]

    def said(self, number: int = 0) -> str:
        """Wait for the end of the process with this number; return what it wrote to standard
        error.
        """
        self.status(number)
        return self._written(number).read_text()

    def status(self, number: int) -> int:
        """Wait for the end of the process with this number; return its status.

        One that does not end in time is made to write where each of its threads stands.
        """
        process = self._all[number]
        try:
            return process.wait(TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGABRT)
            process.wait(TIMEOUT_S)
            text = f"{process.args!r} did not end within {TIMEOUT_S} s:\n{self.said(number)}"
            raise TimeoutError(text) from None

    def wait(self) -> list[int]:
        """Wait for the end of all; return their statuses, that of the trainer first."""
        return [self.status(number) for number in range(len(self._all))]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for process in self._all:
            process.kill()
            process.wait(TIMEOUT_S)
        self._directory.cleanup()

    def _start(self, module: str, worker: Mapping[str, str]) -> None:
        command = [sys.executable, "-m", module]
        environment = {**self._environment, **worker}
        with self._written(len(self._all)).open("wb") as written:
            self._all.append(subprocess.Popen(command, env=environment, stderr=written))

    def _written(self, number: int) -> Path:
        return Path(self._directory.name) / f"{number}.txt"


def kill_further_rank(parent: int) -> None:
    """Kill the process of a further rank that this process has started."""
    if (process := further_rank(parent)) is None:
        raise LookupError(f"process {parent} has no further rank")
    os.kill(process, signal.SIGKILL)


def further_rank(parent: int) -> int | None:
    """Return the process of a further rank that this process has started; None if it has none."""
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # one that ends meanwhile
            started_by = int((process / "stat").read_text().rpartition(") ")[2].split()[1])
            if started_by == parent and b"follower" in (process / "cmdline").read_bytes():
                return int(process.name)
    return None
