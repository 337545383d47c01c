"""Whether an optional move of a worker pays. Pure.

Only moves that nothing waits for are asked about: back to rollout after a step, extra helpers of a
gang. What a ready batch needs is never held up here. Called by `scheduler/policies.py` and
`scheduler/assignments.py`.
"""

from scheduler.snapshot import Snapshot, WorkerView


def may_leave(snapshot: Snapshot, worker: WorkerView) -> bool:
    """Whether a worker that could as well stay in training should roll out until the next batch."""
    if worker.acquired_ms is None or snapshot.running == 0:
        return False
    if snapshot.now_ms - worker.acquired_ms < snapshot.min_dwell_ms:
        return False
    others = any(other.role == "rollout" for other in snapshot.workers if other.name != worker.name)
    return not others or _pause_is_longer_than_switch(snapshot, worker)


def helper_pays(snapshot: Snapshot, gang_size: int) -> bool:
    """Whether one worker more shortens the step by more than its two switches take."""
    train, switch = snapshot.prices.train, snapshot.prices.round_trip
    if train is None or switch is None:
        return False
    return train / gang_size - train / (gang_size + 1) > switch


def _pause_is_longer_than_switch(snapshot: Snapshot, worker: WorkerView) -> bool:
    """By the rate at which groups get ready; or, where that was wrong, by what was waited already.

    Leaving once as much was waited as the switch costs is never worse than twice the best choice
    (the ski rental argument). Costs nobody has measured are measured by moving.
    """
    switch, group = snapshot.prices.round_trip, snapshot.prices.group
    if switch is None or group is None:
        return True
    waited = snapshot.now_ms - max(snapshot.ended_ms, worker.acquired_ms or 0)
    return max(snapshot.missing * group, waited) > switch
