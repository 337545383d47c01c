"""A trainer and its training processes, as processes of their own."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.builders.trainer.scripted_scheduler import TIMEOUT_S


class TrainerProcesses:
    """All of them; the further environments are those of the workers that train."""

    def __init__(
        self, environment: Mapping[str, str], workers: Sequence[Mapping[str, str]] = ({},)
    ) -> None:
        self._environment = {**os.environ, **environment}
        self._all = [_process("seamlessflow.trainer", self._environment)]
        for worker in workers:
            self.start(worker)

    def start(self, worker: Mapping[str, str]) -> None:
        """Start the training process of one more worker."""
        self._all.append(_process("seamlessflow.trainer.ranks", {**self._environment, **worker}))

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
        words = [process.communicate(timeout=TIMEOUT_S)[1].decode() for process in self._all]
        return list(zip(self.wait(), words, strict=True))

    def said(self, number: int = 0) -> str:
        """Wait for the end of the process with this number; return what it wrote to standard
        error.
        """
        return self._all[number].communicate(timeout=TIMEOUT_S)[1].decode()

    def status(self, number: int) -> int:
        """Wait for the end of the process with this number; return its status."""
        return self._all[number].wait(TIMEOUT_S)

    def wait(self) -> list[int]:
        """Wait for the end of all; return their statuses, that of the trainer first."""
        return [process.wait(TIMEOUT_S) for process in self._all]

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
            process.communicate(timeout=TIMEOUT_S)


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


def _process(module: str, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", module]
    return subprocess.Popen(command, env=dict(environment), stderr=subprocess.PIPE)
