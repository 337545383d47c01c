"""Merging on several processes, each with some of the partitions."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from typing import Any

from seamlessflow.infra.clock import Stopping, never
from seamlessflow.infra.errors import SeamlessFlowError
from seamlessflow.infra.process import collect_seldom
from seamlessflow.recorded.merge.partitions import Merged, MergeJob, merge
from seamlessflow.recorded.merge.targets import PARTS

_SHOWN_EVERY_S = 0.2
_shared: Any = None
"""In a pool's process: the event counter, and the event that asks the process to end."""


class MergeStopped(SeamlessFlowError):
    """The replay was asked to end before it had merged all."""

    lasting = False

    def __init__(self) -> None:
        super().__init__("asked to end; what is written stays")


def merge_on(
    processes: int, job: MergeJob, count: Callable[[int], None], stopping: Stopping = never
) -> Merged:
    """Merge the job's partitions on so many processes; `count` as in `merge`.

    Raises what `merge` raises, and `MergeStopped`.
    """
    if processes == 1:
        collect_seldom()
        merged = Merged()
        for part in parts(job):
            merged.add(merge(part, count, stopping))
        return merged
    # Clients of Kafka have threads, which a forked process would lack.
    context = multiprocessing.get_context("spawn")
    counted = context.Value("q", 0)
    stop = context.Event()
    with ProcessPoolExecutor(processes, context, _begin, (counted, stop)) as pool:
        try:
            jobs = {pool.submit(_merge, part) for part in parts(job)}
            return _gathered(jobs, lambda: count(_taken(counted)), stopping)
        finally:
            stop.set()
            pool.shutdown(cancel_futures=True)


def parts(job: MergeJob) -> list[MergeJob]:
    """Return jobs that together have all partitions, the longest first.

    The same partitions always go together, whatever the processes are. So a part's transactional id
    fences an earlier replay of that part.
    """
    numbers = [[bound for bound in job.bounds if bound % PARTS == part] for part in range(PARTS)]

    def length(numbers: list[int]) -> int:
        return sum(job.bounds[number][1] - job.bounds[number][0] for number in numbers)

    return [job.part(some) for some in sorted(numbers, key=length, reverse=True) if some]


def _gathered(jobs: set[Future[Merged]], show: Callable[[], None], stopping: Stopping) -> Merged:
    merged = Merged()
    while jobs:
        done, jobs = wait(jobs, _SHOWN_EVERY_S, FIRST_COMPLETED)
        show()
        if stopping():
            raise MergeStopped
        for job in done:
            merged.add(job.result())
    return merged


def _taken(counted: Any) -> int:
    """Return the events counted since the last call."""
    with counted.get_lock():
        value = counted.value
        counted.value = 0
    return int(value)


def _begin(*shared: Any) -> None:
    """Begin a process in the pool; only the first process obeys an interrupt."""
    global _shared
    _shared = shared
    collect_seldom()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """End this process when the process that began it was killed."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _merge(job: MergeJob) -> Merged:
    counted, stop = _shared

    def count(events: int) -> None:
        with counted.get_lock():
            counted.value += events

    return merge(job, count, stop.is_set)
