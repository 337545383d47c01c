"""Estimates that decide whether an optional role change pays. Pure.

Nothing waits for an optional change: back to rollout after a step, or helpers beyond the gang's
size. A change that a ready batch needs is never held up here. Called by
`scheduler/decisions/strategies/` and `scheduler/decisions/assignments.py`.
"""

from collections.abc import Mapping

from seamlessflow.scheduler.decisions.snapshot import Snapshot, WorkerView

UNMEASURED_SWITCH_MS = 500
"""Time that a worker waits for a complete batch, before any switch was measured."""
MARGIN = 1.5
"""Factor by which a predicted pause must exceed the shortest pause in which leaving pays."""
TRIPS_APART = 64
"""Wait before an unpredicted round trip, in round trips; the trip then costs at most 1.6 %."""


def may_leave(snapshot: Snapshot, worker: WorkerView) -> bool:
    """Return True if a worker without a step to train should roll out until the next batch."""
    if worker.acquired_ms is None or snapshot.running == 0:
        return False
    if snapshot.now_ms - worker.acquired_ms < snapshot.min_dwell_ms:
        return False
    if snapshot.over:  # only an evaluation still runs, and no training follows
        return True
    switch_ms = snapshot.costs.round_trip
    # The batch is complete and only its announcement is missing: leave only if that takes too long.
    if snapshot.missing == 0 and switch_ms is None:
        return _waited(snapshot, worker) > UNMEASURED_SWITCH_MS
    if switch_ms is not None and _waited_in_vain(snapshot, worker, switch_ms):
        return True
    if snapshot.missing == 0:
        return False
    others = snapshot.rolling > (worker.role == "rollout")
    # Only switches show what a switch costs, so the first ones are made without an estimate.
    if not others or switch_ms is None or snapshot.costs.group is None:
        return True
    return _pause(snapshot) > MARGIN * _worth(snapshot)


def helper_pays(snapshot: Snapshot, gang_size: int, more: int) -> bool:
    """Return True if `more` devices shorten the step by more than the two switches take."""
    train = snapshot.costs.train
    switch = snapshot.costs.round_trip
    if train is None or switch is None:
        return False
    return train / gang_size - train / (gang_size + more) > switch


class TrainingFigures:
    """The figures that decide about leaving training, computed once for equal workers."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._known: dict[int | None, Mapping[str, float]] = {}

    def figures(self, worker: WorkerView) -> Mapping[str, float]:
        """Return the figures for a worker that holds training, in milliseconds."""
        # Workers differ only in when they took training.
        if worker.acquired_ms not in self._known:
            self._known[worker.acquired_ms] = _figures(self._snapshot, worker)
        return self._known[worker.acquired_ms]


def _figures(snapshot: Snapshot, worker: WorkerView) -> dict[str, float]:
    figures = {
        "pause_ms": _pause(snapshot),
        "waited_ms": _waited(snapshot, worker),
        "missing_groups": snapshot.missing,
    }
    switch = snapshot.costs.round_trip
    if switch is None:
        return figures
    return {**figures, "round_trip_ms": switch, "least_pause_ms": MARGIN * _worth(snapshot)}


def _pause(snapshot: Snapshot) -> float:
    """Return how long training will pause: the lower of two predictions.

    The first is the missing groups times the mean time between two ready groups. It treats groups
    under way as new. So the second is the mean time between batches, minus the time since the last
    batch.
    """
    costs = snapshot.costs
    by_groups = snapshot.missing * (costs.group or 0)
    if costs.batch is None:
        return by_groups
    return min(by_groups, max(0.0, costs.batch - (snapshot.now_ms - snapshot.batch_ms)))


def _worth(snapshot: Snapshot) -> float:
    """Return the shortest pause in which rollout saves more than the switches cost.

    n devices can roll out, and g of them leave training for a pause p. Rollout still needs p (n -
    g) device time. After the switch a, all devices do that work, in (p (n - g) + g a) / n. The
    batch then waits for the switch b. That is sooner than p if p > a + b n / g.
    """
    away = snapshot.costs.to_rollout or 0
    back = snapshot.costs.to_train or 0
    return away + back * snapshot.rolling_devices / max(1, snapshot.leaving_devices)


def _waited(snapshot: Snapshot, worker: WorkerView) -> float:
    """Return how long training has paused already."""
    return snapshot.now_ms - max(snapshot.ended_ms, worker.acquired_ms or 0)


def _waited_in_vain(snapshot: Snapshot, worker: WorkerView, switch_ms: float) -> bool:
    """Return True if the prediction was too short, and a wrong move would cost little.

    The batch may come as soon as the worker has left, and some loads repeat that. The time since
    the worker took training limits the cost.
    """
    held_ms = snapshot.now_ms - (worker.acquired_ms or 0)
    return _waited(snapshot, worker) > switch_ms and held_ms > TRIPS_APART * switch_ms
