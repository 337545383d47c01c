"""Strategy that trains only when no group is under way, so that each batch is `run.lag` steps old.

With lag L the groups of L + 1 batches are admitted. The oldest are trained once all of them are
ready, and as many new ones begin with the version that follows: those are trained L steps later.
`benchmarks/scheduling/ages.py` names it as `scheduler.policy`.
"""

from collections.abc import Sequence

from seamlessflow.scheduler.decisions.snapshot import Snapshot
from seamlessflow.scheduler.decisions.strategies.wanted import Wanted, form_gang, roll_out, train

SETTLED_MS = 500
"""Time after a step in which the groups that it makes room for are admitted."""


def aged(snapshot: Snapshot) -> Sequence[Wanted]:
    """Want training of a batch that waits once all groups are ready, and rollout of the others."""
    settled = snapshot.now_ms - snapshot.ended_ms >= SETTLED_MS
    whole = snapshot.under_way or (snapshot.running == 0 and settled)
    trainers = [worker for worker in snapshot.workers if "train" in worker.tags]
    rollers = [worker for worker in snapshot.workers if "rollout" in worker.tags]
    gang = form_gang(snapshot, trainers) if snapshot.batch and whole else frozenset()
    return [*train(snapshot, gang, "all groups are ready"), *roll_out(snapshot, rollers, gang)]
