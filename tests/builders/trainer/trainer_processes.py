"""A trainer and its training processes, as processes of their own."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self

from tests.builders.trainer.scripted_scheduler import TIMEOUT_S


class TrainerProcesses:
    """All of them; the further environments are those of the workers that train."""

    def __init__(
        self, environment: Mapping[str, str], workers: Sequence[Mapping[str, str]] = ({},)
    ) -> None:
        own = {**os.environ, **environment}
        self._all = [_process("trainer", own)]
        self._all += [_process("trainer.ranks", {**own, **worker}) for worker in workers]

    def kill(self, number: int = 0) -> list[int]:
        """Kill the trainer, or the process with this number; return the status of each other."""
        self._all[number].send_signal(signal.SIGKILL)
        statuses = self.wait()
        return statuses[:number] + statuses[number + 1 :]

    def ask_to_end(self) -> list[tuple[int, str]]:
        """Ask all to end; return the status of each, and what it wrote to standard error."""
        for process in self._all:
            process.send_signal(signal.SIGTERM)
        words = [process.communicate(timeout=TIMEOUT_S)[1].decode() for process in self._all]
        return list(zip(self.wait(), words, strict=True))

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


def _process(module: str, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", module]
    return subprocess.Popen(command, env=dict(environment), stderr=subprocess.PIPE)
