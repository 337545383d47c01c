"""Estimates of whether an optional change of role pays. Pure.

Optional are the changes that nothing waits for: back to rollout after a step, and helpers beyond
the gang's size. A change that a ready batch needs is never held up here. Called by
`scheduler/decisions/strategies.py` and `scheduler/decisions/assignments.py`.
"""

from scheduler.decisions.snapshot import Snapshot, WorkerView

UNMEASURED_SWITCH_MS = 500
"""Time a worker stays for a batch that is complete, before any switch was measured."""


def may_leave(snapshot: Snapshot, worker: WorkerView) -> bool:
    """Return True if a worker without a step to train should roll out until the next batch."""
    if worker.acquired_ms is None or snapshot.running == 0:
        return False
    if snapshot.now_ms - worker.acquired_ms < snapshot.min_dwell_ms:
        return False
    pause_ms, switch_ms = _pause(snapshot, worker), snapshot.costs.round_trip
    unmeasured = switch_ms is None or snapshot.costs.group is None
    # The batch is complete, only its announcement is missing: leave only if that takes too long.
    if snapshot.missing == 0:
        return pause_ms > (UNMEASURED_SWITCH_MS if switch_ms is None else switch_ms)
    # Switch costs are only known from switches, so the first ones are made without an estimate.
    others = any(other.role == "rollout" for other in snapshot.workers if other.name != worker.name)
    return not others or unmeasured or pause_ms > (switch_ms or 0)


def helper_pays(snapshot: Snapshot, gang_size: int, more: int) -> bool:
    """Return True if `more` devices shorten the step by more than the two switches take."""
    train, switch = snapshot.costs.train, snapshot.costs.round_trip
    if train is None or switch is None:
        return False
    return train / gang_size - train / (gang_size + more) > switch


def figures(snapshot: Snapshot, worker: WorkerView) -> dict[str, float]:
    """Return the figures that decide whether the worker may leave training, in milliseconds."""
    known = {"pause_ms": _pause(snapshot, worker), "missing_groups": snapshot.missing}
    switch = snapshot.costs.round_trip
    return known if switch is None else {**known, "round_trip_ms": switch}


def _pause(snapshot: Snapshot, worker: WorkerView) -> float:
    """Return how long training will pause, predicted by the rate at which groups get ready, but at
    least as long as it has paused already.

    A worker that leaves once it has waited as long as the switch takes never loses more than twice
    what the best choice would have cost (the ski rental argument).
    """
    waited = snapshot.now_ms - max(snapshot.ended_ms, worker.acquired_ms or 0)
    return max(snapshot.missing * (snapshot.costs.group or 0), waited)
