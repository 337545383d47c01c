"""Pauses of a run: the times in which no process of it lived, from `control` alone. Pure.

A run that was stopped, and resumed an hour later, was not there in between: the hour is no
worker's, no group's and no step's. Called by `scheduler/state/timeline.py`.
"""

from collections.abc import Iterable, Iterator, Sequence

from seamlessflow.scheduler.state.accounts.device_time import Window
from seamlessflow.scheduler.state.state import Decision
from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Record

_Life = tuple[str, ...]
"""Identity of a process: new at each start, so no record names it before or behind its life."""
_WORKER = (
    r.WorkerJoined
    | r.WorkerUsage
    | r.RoleAcquired
    | r.RoleReleased
    | r.GenerationPaused
    | r.GenerationResumed
    | r.WeightsLoaded
)
"""Records that show a worker's process alive. `WorkerLost` is about one that is gone."""


def pauses(records: Sequence[Record]) -> tuple[Window, ...]:
    """Return the pauses between records of `control` in log order; each has a length.

    Between two neighbouring records lies one if no process is seen alive both before and behind it,
    neither that of a worker, nor a trainer, nor a scheduler, and if a new scheduler follows.
    """
    claims = [
        number for number, record in enumerate(records) if isinstance(record, r.SchedulerClaimed)
    ]
    if len(claims) < 2:
        return ()
    last = {life: number for number, record in enumerate(records) for life in _lives(record)}
    last |= dict.fromkeys(_lives(records[claims[-1]]), len(records))
    windows, reaches, now_ms = list[Window](), claims[0], None
    for number, record in enumerate(records):
        at_ms: int | None = getattr(record, "at_ms", None)
        if at_ms is not None:
            if now_ms is not None and reaches < number and at_ms > now_ms:
                windows.append((now_ms, at_ms))
            now_ms = at_ms if now_ms is None else max(now_ms, at_ms)
        reaches = max([reaches, *(last[life] for life in _lives(record))])
    return tuple(windows)


def without(window: Window, paused: Iterable[Window]) -> int:
    """Return the length of a window without the pauses in it."""
    start_ms, end_ms = window
    inside = (max(0, min(end_ms, end) - max(start_ms, start)) for start, end in paused)
    return end_ms - start_ms - sum(inside)


def _lives(record: Record) -> Iterator[_Life]:
    """Yield the processes that a record shows alive."""
    if isinstance(record, r.SchedulerClaimed | Decision):
        yield "scheduler", str(record.epoch)
    if isinstance(record, _WORKER):
        yield "worker", record.worker, record.incarnation
    if isinstance(record, r.LineageStarted | r.StepCommitted | r.StepCompleted):
        yield "trainer", record.policy, record.lineage
