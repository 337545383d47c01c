"""Strategy that moves the workers with both tags after every step, whether that pays or not.

`benchmarks/scheduling/switch.py` names it as `scheduler.policy`.
"""

from collections.abc import Sequence
from dataclasses import replace

from seamlessflow.scheduler.decisions.snapshot import Snapshot, WorkerView
from seamlessflow.scheduler.decisions.strategies.built_in import multiplexed
from seamlessflow.scheduler.decisions.strategies.wanted import BOTH, Wanted

DWELL_MS = 500
"""Least time in rollout: by then turns are in flight on the worker."""


def alternating(snapshot: Snapshot) -> Sequence[Wanted]:
    """Want what `multiplexed` wants, but rollout between any two steps on a worker."""
    rolls_out = any(_owes_rollout(worker, snapshot) for worker in snapshot.workers)
    seen = replace(snapshot, batch=snapshot.batch and not rolls_out)
    return [want._replace(optional=False) for want in multiplexed(seen)]


def _owes_rollout(worker: WorkerView, snapshot: Snapshot) -> bool:
    if not worker.tags >= BOTH or snapshot.under_way:
        return False
    since_ms = worker.acquired_ms
    if worker.role == "rollout":
        return since_ms is None or snapshot.now_ms - since_ms < DWELL_MS
    return worker.role == "train" and since_ms is not None and snapshot.ended_ms >= since_ms
