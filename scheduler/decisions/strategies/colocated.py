"""The strategy `colocated`: all workers have both tags; all train when a batch is ready, else all
roll out. Pure.
"""

from seamlessflow.scheduler.decisions.snapshot import Snapshot
from seamlessflow.scheduler.decisions.strategies.gangs import form_gang
from seamlessflow.scheduler.decisions.strategies.wanted import BOTH, Wanted, roll_out, train


def colocated(snapshot: Snapshot) -> list[Wanted]:
    """Want the same role for all workers."""
    able = [worker for worker in snapshot.workers if worker.tags >= BOTH]
    gang = form_gang(snapshot, able) if snapshot.batch else frozenset()
    return [*train(snapshot, gang, "a batch is ready"), *roll_out(snapshot, able, gang)]
