"""Merging on several processes, each with some of the partitions."""

import multiprocessing
import signal
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from typing import Any

from consumers.replay.merge import Merged, MergeJob, merge
from infra.errors import SeamlessFlowError
from infra.kafka.outage import Stopping, never

_SHOWN_EVERY_S = 0.2
_JOBS_A_PROCESS = 4
"""Partitions differ in length, so a process that is done with some takes further ones."""
_shared: Any = None
"""In a process of the pool: the counter of events, and the event that asks it to end."""


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
        return merge(job, count, stopping)
    # Clients of Kafka have threads, which a forked process would lack.
    context = multiprocessing.get_context("spawn")
    counted, stop = context.Value("q", 0), context.Event()
    with ProcessPoolExecutor(processes, context, _begin, (counted, stop)) as pool:
        try:
            jobs = {pool.submit(_merge, part) for part in parts(job, processes)}
            return _gathered(jobs, lambda: count(_taken(counted)), stopping)
        finally:
            stop.set()
            pool.shutdown(cancel_futures=True)


def parts(job: MergeJob, processes: int) -> list[MergeJob]:
    """Return jobs of about equal length that have all partitions together, the longest first."""
    lengths = {number: end - start for number, (start, end) in job.bounds.items()}
    most = min(len(lengths), processes * _JOBS_A_PROCESS)
    bins: list[list[int]] = [[] for _ in range(most)]

    def length(numbers: list[int]) -> int:
        return sum(lengths[number] for number in numbers)

    for number in sorted(lengths, key=lambda one: -lengths[one]):
        min(bins, key=length).append(number)
    return [job.part(numbers) for numbers in sorted(bins, key=length, reverse=True) if numbers]


def _gathered(jobs: set[Future[Merged]], show: Callable[[], None], stopping: Stopping) -> Merged:
    merged = Merged()
    while jobs:
        done, jobs = wait(jobs, _SHOWN_EVERY_S, FIRST_COMPLETED)
        show()
        if stopping():
            raise MergeStopped
        for one in done:
            merged.add(one.result())
    return merged


def _taken(counted: Any) -> int:
    """Return the events counted since the last call."""
    with counted.get_lock():
        value, counted.value = counted.value, 0
    return int(value)


def _begin(*shared: Any) -> None:
    """Begin a process of the pool; the first process alone obeys an interrupt."""
    global _shared
    _shared = shared
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _merge(job: MergeJob) -> Merged:
    counted, stop = _shared

    def count(events: int) -> None:
        with counted.get_lock():
            counted.value += events

    return merge(job, count, stop.is_set)
