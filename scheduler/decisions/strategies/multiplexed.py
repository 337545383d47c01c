"""The strategy `multiplexed`: workers with the tag `rollout` alone always roll out; those with both
tags train when a batch is ready and roll out otherwise. Pure.
"""

from seamlessflow.scheduler.decisions.snapshot import Snapshot
from seamlessflow.scheduler.decisions.strategies.gangs import form_gang
from seamlessflow.scheduler.decisions.strategies.wanted import Wanted, roll_out, train


def multiplexed(snapshot: Snapshot) -> list[Wanted]:
    """Want rollout of workers without the tag train; the others train when a batch is ready."""
    trainers = [worker for worker in snapshot.workers if "train" in worker.tags]
    gang = form_gang(snapshot, trainers) if snapshot.batch else frozenset()
    rollers = [worker for worker in snapshot.workers if "rollout" in worker.tags]
    return [*train(snapshot, gang, "a batch is ready"), *roll_out(snapshot, rollers, gang)]
