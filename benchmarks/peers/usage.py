"""Processor time and memory of a program and of all processes below it, as Linux counts them."""

import os
import time
from collections import defaultdict
from pathlib import Path

from benchmarks.peers.result import Usage
from seamlessflow.processes.usage import peak_rss_mb

_TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")
_PARENT = 1
_USER_TICKS = 11
_SYSTEM_TICKS = 12
"""Places in `/proc/PID/stat` behind the name, which is in brackets and may have spaces."""


class ProcessTree:
    """A process and those below it. A process that ended keeps the time that it was seen with."""

    def __init__(self, root: int) -> None:
        self._root = root
        self._cpu_s: dict[int, float] = {}

    def look(self) -> Usage:
        """Return the use so far."""
        stats = _stats()
        children = defaultdict[int, list[int]](list)
        for pid, stat in stats.items():
            children[int(stat[_PARENT])].append(pid)
        living = [self._root] if self._root in stats else []
        for pid in living:  # grows while it is read
            living += children[pid]
        for pid in living:
            ticks = int(stats[pid][_USER_TICKS]) + int(stats[pid][_SYSTEM_TICKS])
            self._cpu_s[pid] = ticks / _TICKS_A_SECOND
        peaks = {f"{pid} {_name(pid)}": peak_rss_mb(pid) for pid in living}
        return Usage(time.time(), sum(self._cpu_s.values()), _machine_s(), peaks)


def _stats() -> dict[int, list[str]]:
    """Return the fields behind the name of each process's `stat`."""
    stats = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            text = (folder / "stat").read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue  # it ended meanwhile
        stats[int(folder.name)] = text.rpartition(")")[2].split()
    return stats


def _machine_s() -> float:
    """Return the processor time of all that ran since the machine started."""
    line, *_ = Path("/proc/stat").read_text(encoding="ascii").splitlines()
    user, nice, system, _, _, *others = (int(ticks) for ticks in line.split()[1:9])
    return (user + nice + system + sum(others)) / _TICKS_A_SECOND


def _name(pid: int) -> str:
    """Return the module or program that a process runs, empty if it ended."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return ""
    if "-m" in command[:-1]:
        return command[command.index("-m") + 1]
    return Path(command[0]).name
