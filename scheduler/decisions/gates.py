"""Whether an optional move of a worker pays. Pure.

Only moves that nothing waits for are asked about: back to rollout after a step, extra helpers of a
gang. What a ready batch needs is never held up here. Called by `policies.py` and
`scheduler/decisions/assignments.py`.
"""

from scheduler.decisions.snapshot import Snapshot, WorkerView

UNMEASURED_SWITCH_MS = 500
"""How long a complete batch is waited for where no switch was measured."""


def may_leave(snapshot: Snapshot, worker: WorkerView) -> bool:
    """Whether a worker that could as well stay in training should roll out until the next batch."""
    if worker.acquired_ms is None or snapshot.running == 0:
        return False
    if snapshot.now_ms - worker.acquired_ms < snapshot.min_dwell_ms:
        return False
    pause_ms, switch_ms = _pause(snapshot, worker), snapshot.prices.round_trip
    unmeasured = switch_ms is None or snapshot.prices.group is None
    if snapshot.missing == 0:
        return pause_ms > (UNMEASURED_SWITCH_MS if switch_ms is None else switch_ms)
    others = any(other.role == "rollout" for other in snapshot.workers if other.name != worker.name)
    return not others or unmeasured or pause_ms > (switch_ms or 0)


def helper_pays(snapshot: Snapshot, gang_size: int) -> bool:
    """Whether one worker more shortens the step by more than its two switches take."""
    train, switch = snapshot.prices.train, snapshot.prices.round_trip
    if train is None or switch is None:
        return False
    return train / gang_size - train / (gang_size + 1) > switch


def _pause(snapshot: Snapshot, worker: WorkerView) -> float:
    """How long training pauses: by the rate at which groups get ready, or, where that was wrong, as
    long as it did already.

    Leaving once as much was waited as the switch costs is never worse than twice the best choice
    (the ski rental argument).
    """
    waited = snapshot.now_ms - max(snapshot.ended_ms, worker.acquired_ms or 0)
    return max(snapshot.missing * (snapshot.prices.group or 0), waited)
