"""Waste: the share of device time that a strategy must leave idle, from measured costs. Pure.

Predicted by the closed form (`scheduler/state/accounts/closed_form.py`). Called by
`scheduler/decisions/decide.py`.
"""

from collections.abc import Collection, Sequence

from scheduler.decisions.snapshot import Snapshot
from scheduler.settings import SchedulerSettings, milliseconds
from scheduler.state.accounts.closed_form import StepWork, devices_that_train, predicted
from scheduler.state.state import State
from schemas.records import PlanWarning

MEASURED_STEPS = 8
"""Steps before the first warning, so that a few slow ones at the start do not count."""
REPEAT_CHANGE = 0.1
"""Change of a share after which its warning is given again."""
SETTLED_MS = 30_000
"""Time that workers have to join before missing tags are warned of."""


def warnings(
    state: State, snapshot: Snapshot, settings: SchedulerSettings, without_slot: Sequence[str] = ()
) -> list[PlanWarning]:
    """Return the warnings that are new, or whose share changed much since they were last given.

    `without_slot` are workers that cannot roll out because all partitions of `prompts` are read.
    """
    found = [*_unfit(state, snapshot, settings), *_idle(state, snapshot, settings)]
    if without_slot:
        share = _devices(snapshot, without_slot) / _devices(snapshot)
        found.append(("no_slot", f"no slot is free for {', '.join(without_slot)}", share))
    return [
        PlanWarning(
            epoch=state.epoch,
            at_ms=snapshot.now_ms,
            code=code,
            detail=detail,
            predicted_idle_share=share,
            policy=settings.run.policy,
        )
        for code, detail, share in found
        if abs(state.warned.get(code, -1.0) - share) > REPEAT_CHANGE
    ]


def _idle(
    state: State, snapshot: Snapshot, settings: SchedulerSettings
) -> list[tuple[str, str, float]]:
    rollout, train = snapshot.costs.rollout, snapshot.costs.train
    if rollout is None or train is None or len(state.costs.step.values) < MEASURED_STEPS:
        return []
    strategy, total = settings.scheduler.policy, _devices(snapshot)
    gang = min(state.costs.gang_size, total)
    if total == 0 or rollout <= 0:
        return []
    work = StepWork(rollout=rollout, train=train)
    share = predicted(strategy, total, gang, work, settings.run.lag).idle
    if share < settings.scheduler.idle_warning:
        return []
    enough = devices_that_train(total, rollout, train)
    return [
        (
            "idle_workers",
            f"a step takes {rollout / 1000:.1f} s of device time for rollout and "
            f"{train / 1000:.1f} s for training; {gang} of {total} devices train. "
            f"No bubble: multiplexed, lag 1 or more, {enough} or more devices that train",
            share,
        )
    ]


def _training_waits(state: State, snapshot: Snapshot, settings: SchedulerSettings) -> bool:
    """Return whether workers that train are late; an evaluation needs none, a model loads long."""
    if snapshot.batch:
        return True
    late_ms = milliseconds(settings.scheduler.assignment_timeout_s)
    return settings.pacing.issues and snapshot.now_ms - state.claimed_ms >= late_ms


def _unfit(
    state: State, snapshot: Snapshot, settings: SchedulerSettings
) -> list[tuple[str, str, float]]:
    """Return warnings of tags that do not fit the strategy, after the workers had time to join."""
    if not snapshot.workers or snapshot.now_ms - state.claimed_ms < SETTLED_MS:
        return []
    tags = [worker.tags for worker in snapshot.workers]
    able = {worker.name for worker in snapshot.workers if "train" in worker.tags}
    trainers, needed = _devices(snapshot, able), snapshot.gang_size or 1
    found = []
    if trainers < needed and _training_waits(state, snapshot, settings):
        detail = f"{trainers} devices have the tag train, {needed} are needed"
        found.append(("gang_too_small", detail, 1.0))
    # A scheduler without tasks is one of recorded sessions, or of clients that bring their own.
    expected = settings.pacing.issues or settings.evaluation.tasks is not None
    if expected and not any("rollout" in of for of in tags):
        found.append(("no_rollout_worker", "no worker has the tag rollout", 1.0))
    odd = [worker.name for worker in snapshot.workers if len(worker.tags) < 2]
    if settings.scheduler.policy == "colocated" and odd:
        detail = f"colocated uses only workers with both tags, not {', '.join(odd)}"
        found.append(("unused_workers", detail, _devices(snapshot, odd) / _devices(snapshot)))
    return found


def _devices(snapshot: Snapshot, names: Collection[str] | None = None) -> int:
    """Return the number of devices of the named workers, or of all."""
    chosen = [of for of in snapshot.workers if names is None or of.name in names]
    return sum(worker.devices for worker in chosen)
