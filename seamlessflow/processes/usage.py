"""Memory and processor time of processes, as Linux counts them."""

import os
import time
from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_MB = 1024.0
_NS = 1e9
Thread = tuple[str, int, int]
"""Its process's name, process id and thread id."""


@dataclass(frozen=True, slots=True)
class ThreadTime:
    """A thread's times, in seconds."""

    computed_s: float = 0.0
    """On a processor."""
    waited_s: float = 0.0
    """Ready to run, but without a processor: in the run queue."""

    def __sub__(self, other: "ThreadTime") -> "ThreadTime":
        return ThreadTime(self.computed_s - other.computed_s, self.waited_s - other.waited_s)


@dataclass(frozen=True, slots=True)
class ProcessLoad:
    """A process's load over some time, as shares of that time."""

    computed: float
    """Computing time of all threads together, so 2.0 with two processors full."""
    waited: float
    """Time in the run queue: the threads' mean, weighted by their computed time.

    A piece of work waits about that long.
    """


def peak_rss_mb(pid: int | str) -> float:
    """Return the largest resident set so far, in MiB, or 0 if it cannot be read."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    except OSError:
        return 0.0
    for line in status.splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / _MB
    return 0.0


def thread_times(pids: Mapping[str, int]) -> Mapping[Thread, ThreadTime]:
    """Return the times of all living threads in these processes, each since it began.

    A process that leads a session stands for all of it: so a worker's further ranks count.
    """
    threads = {}
    members = _sessions()
    for name, leader in pids.items():
        for pid in {leader, *members.get(leader, ())}:
            for task in Path(f"/proc/{pid}/task").glob("*/schedstat"):
                try:
                    computed, waited, _ = task.read_text(encoding="ascii").split()
                except OSError:
                    continue  # the thread ended meanwhile
                times = ThreadTime(int(computed) / _NS, int(waited) / _NS)
                threads[name, pid, int(task.parent.name)] = times
    return threads


class LoadMeter:
    """Load of processes from now on. A thread that ends counts up to the last look at it."""

    def __init__(self, pids: Mapping[str, int]) -> None:
        """Begin with the processes that run now, by name."""
        self._before = thread_times(pids)
        self._after = dict(self._before)
        self._began_s = time.monotonic()

    def look(self, pids: Mapping[str, int]) -> None:
        """Note the times of the processes that run now."""
        self._after.update(thread_times(pids))

    def loads(self, pids: Mapping[str, int]) -> Mapping[str, ProcessLoad]:
        """Return each process's load, also for processes that ended since the beginning."""
        self.look(pids)
        return loads(self._before, self._after, time.monotonic() - self._began_s)


def loads(
    before: Mapping[Thread, ThreadTime], after: Mapping[Thread, ThreadTime], lasted_s: float
) -> Mapping[str, ProcessLoad]:
    """Return each process's load between two measurements, by name.

    A thread that began between them counts in full, also if its process was started again.
    """
    spent: defaultdict[str, list[ThreadTime]] = defaultdict(list)
    for thread, times in after.items():
        spent[thread[0]].append(times - before.get(thread, ThreadTime()))
    return {name: _load(threads, lasted_s) for name, threads in sorted(spent.items())}


def _sessions() -> Mapping[int, list[int]]:
    """Return all processes on this machine, by their session's leader."""
    members: defaultdict[int, list[int]] = defaultdict(list)
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with suppress(OSError):  # it ended meanwhile
                members[os.getsid(int(entry.name))].append(int(entry.name))
    return members


def _load(threads: list[ThreadTime], lasted_s: float) -> ProcessLoad:
    computed_s = sum(thread.computed_s for thread in threads)
    # Any thread in a pool may get a piece of work, and those that compute the most get the most.
    by_work = sum(thread.waited_s * thread.computed_s for thread in threads)
    return ProcessLoad(computed_s / lasted_s, by_work / (computed_s or 1.0) / lasted_s)
