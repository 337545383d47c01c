"""Memory and processor time of processes, as Linux counts them."""

import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

_MB = 1024.0
_NS = 1e9
Thread = tuple[int, int]
"""Process and thread id."""


@dataclass(frozen=True, slots=True)
class ThreadTime:
    """Times of a thread, in seconds."""

    computed_s: float = 0.0
    """On a processor."""
    waited_s: float = 0.0
    """Ready to run, but without a processor: in the run queue."""

    def __sub__(self, other: "ThreadTime") -> "ThreadTime":
        return ThreadTime(self.computed_s - other.computed_s, self.waited_s - other.waited_s)


@dataclass(frozen=True, slots=True)
class ProcessLoad:
    """Load of a process over some time, as shares of that time."""

    computed: float
    """All threads together, so 2.0 with two processors full."""
    waited: float
    """In the run queue: the threads' mean, weighted by their computed time, as a piece of work
    waits."""


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


def thread_times(pids: Iterable[int]) -> Mapping[Thread, ThreadTime]:
    """Return the times of all living threads of these processes, each since it began."""
    threads = {}
    for pid in pids:
        for task in Path(f"/proc/{pid}/task").glob("*/schedstat"):
            try:
                computed, waited, _ = task.read_text(encoding="ascii").split()
            except OSError:
                continue  # the thread ended meanwhile
            times = ThreadTime(int(computed) / _NS, int(waited) / _NS)
            threads[pid, int(task.parent.name)] = times
    return threads


class LoadMeter:
    """Load of processes from now on."""

    def __init__(self, pids: Mapping[str, int]) -> None:
        self._before = thread_times(pids.values())
        self._began_s = time.monotonic()

    def loads(self, pids: Mapping[str, int]) -> Mapping[str, ProcessLoad]:
        """Return the load of each of the processes that now run under these names."""
        lasted_s = time.monotonic() - self._began_s
        return loads(pids, self._before, thread_times(pids.values()), lasted_s)


def loads(
    pids: Mapping[str, int],
    before: Mapping[Thread, ThreadTime],
    after: Mapping[Thread, ThreadTime],
    lasted_s: float,
) -> Mapping[str, ProcessLoad]:
    """Return the load of each process between two measurements.

    A thread that ended between them is not counted, one that began counts whole.
    """
    spent: defaultdict[int, list[ThreadTime]] = defaultdict(list)
    for thread, times in after.items():
        spent[thread[0]].append(times - before.get(thread, ThreadTime()))
    return {name: _load(spent[pid], lasted_s) for name, pid in sorted(pids.items()) if pid in spent}


def _load(threads: list[ThreadTime], lasted_s: float) -> ProcessLoad:
    computed_s = sum(thread.computed_s for thread in threads)
    # Any thread of a pool may get a piece of work, and those that compute the most get the most.
    by_work = sum(thread.waited_s * thread.computed_s for thread in threads)
    return ProcessLoad(computed_s / lasted_s, by_work / (computed_s or 1.0) / lasted_s)
