"""A benchmark's processes: one that runs to its end, or several that read orders.

The CPU time of several is measured, and they end together.
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from seamlessflow.infra.child import tied

ROOT = Path(__file__).parents[2]
_STOP_TIMEOUT_S = 20
_TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")


def run_module(*arguments: str) -> None:
    """Run `python -m` with these arguments to its end; what it prints goes to standard error.

    Raises `CalledProcessError`.
    """
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path},
        stdout=sys.stderr,
        check=True,
    )


class Children:
    """All processes in one benchmark, by name."""

    def __init__(self) -> None:
        self._processes: dict[str, subprocess.Popen[str]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for process in self._processes.values():
            process.terminate()
        for process in self._processes.values():
            process.wait(_STOP_TIMEOUT_S)
            if process.stdout is not None:
                process.stdout.close()

    def start(
        self,
        name: str,
        module: str,
        orders: Mapping[str, object] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> subprocess.Popen[str]:
        """Run `python -m module` with orders as JSON on its standard input."""
        process = subprocess.Popen(
            tied([sys.executable, "-m", module]),
            cwd=ROOT,
            env={**os.environ, **(environment or {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._processes[name] = process
        assert process.stdin is not None
        process.stdin.write(json.dumps(orders or {}))
        process.stdin.close()
        return process

    def pids(self) -> dict[str, int]:
        """Return the running processes' ids."""
        return {name: p.pid for name, p in self._processes.items() if p.poll() is None}

    def check(self) -> None:
        """Raise `RuntimeError` if a process has ended with an error."""
        for name, process in self._processes.items():
            if process.poll():
                raise RuntimeError(f"{name} ended with status {process.returncode}")


def cpu_s(pid: int) -> float:
    """Return the CPU seconds that a process has used, user and system."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_A_SECOND


def peak_mb(pid: int) -> int:
    """Return the most memory that a process has had, in MB."""
    lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    (kib,) = (line.split()[1] for line in lines if line.startswith("VmHWM:"))
    return round(int(kib) * 1024 / 1_000_000)
