"""Waste: the share of device time that a strategy must leave idle, from measured costs. Pure.

The closed form (`scheduler/state/accounts/closed_form.py`) predicts it. A strategy without a closed
form gets no prediction. Called by `scheduler/decisions/decide.py`.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from seamlessflow.infra.printable import seconds
from seamlessflow.scheduler.decisions.snapshot import Snapshot
from seamlessflow.scheduler.settings import SchedulerSettings, milliseconds
from seamlessflow.scheduler.state.accounts.closed_form import (
    COLOCATED,
    DISAGGREGATED,
    MULTIPLEXED,
    STRATEGIES,
    Prediction,
    StepWork,
    devices_that_train,
    predicted,
)
from seamlessflow.scheduler.state.costs import Costs
from seamlessflow.scheduler.state.policy_state import PolicyState
from seamlessflow.scheduler.state.state import State
from seamlessflow.schemas.records import PlanWarning

MEASURED_STEPS = 8
"""Steps before the first warning, so that a few slow ones at the start do not count."""
REPEAT_CHANGE = 0.1
"""Change in a share after which its warning is given again."""
_LATE = 1.1
"""Batches are late from this ratio on: time between batches over the predicted step."""
SETTLED_MS = 30_000
"""Time that workers have to join before a warning about missing tags."""


class Waste(NamedTuple):
    """Device time that a plan leaves idle, for one reason."""

    code: str
    detail: str
    share: float
    figures: Mapping[str, float]


def warnings(
    state: State,
    policy: PolicyState,
    snapshot: Snapshot,
    settings: SchedulerSettings,
    without_slot: Sequence[str] = (),
) -> list[PlanWarning]:
    """Return the policy's warnings that are new, or whose share changed much since last time.

    `without_slot`: workers that cannot roll out because all partitions of `prompts` are taken.
    """
    wastes = [*_unfit(state, snapshot, settings), *_idle(policy.costs, snapshot, settings)]
    if without_slot:
        detail = f"no slot is free for {', '.join(without_slot)}"
        wastes.append(_unused("no_slot", detail, snapshot, without_slot))
    run = settings.run
    prefix = f"policy {run.policy}: " if len(run.all_policies) > 1 else ""
    return [
        PlanWarning(
            epoch=state.epoch,
            at_ms=snapshot.now_ms,
            code=waste.code,
            detail=prefix + waste.detail,
            predicted_idle_share=waste.share,
            policy=run.policy,
            figures=waste.figures,
        )
        for waste in wastes
        if abs(policy.warned.get(waste.code, -1.0) - waste.share) > REPEAT_CHANGE
    ]


def _idle(measured: Costs, snapshot: Snapshot, settings: SchedulerSettings) -> Iterator[Waste]:
    costs = snapshot.costs
    if costs.rollout is None or costs.train is None:
        return
    strategy = settings.scheduler.policy
    total = _devices(snapshot)
    lag = settings.run.lag
    gang = min(measured.gang_size, total)
    if strategy not in STRATEGIES or total == 0 or costs.rollout <= 0:
        return
    if len(measured.step.values) < MEASURED_STEPS:
        return
    # The groups' latency is left out. In a busy run it is lag + 1 steps, however long they take, so
    # all idle time would be blamed on the plan.
    work = StepWork(
        rollout=costs.rollout,
        train=costs.train,
        switch=costs.round_trip or 0.0,
        load=(costs.load or 0.0) / total,
    )
    now = predicted(strategy, total, gang, work, lag)
    if now.idle < settings.scheduler.idle_warning:
        return
    needed = devices_that_train(total, costs.rollout, costs.train)
    figures = {
        "rollout_ms": costs.rollout,
        "train_ms": costs.train,
        "switch_ms": work.switch,
        "gang": gang,
        "devices": total,
        "needed": needed,
        **({"load_ms": work.load} if work.load else {}),
    }
    best = predicted(MULTIPLEXED, total, max(gang, needed), work, max(1, lag))
    remedy = _remedy(settings, figures, now, best, measured.batch.mean or 0.0)
    yield Waste("idle_workers", f"{_work(figures)}. {remedy}", now.idle, figures)


def _work(figures: Mapping[str, float]) -> str:
    load_s = figures.get("load_ms", 0.0) / 1000
    loads = f", and {seconds(load_s)} a device go to new weights" if load_s else ""
    return (
        f"a step takes {seconds(figures['rollout_ms'] / 1000)} of device time for rollout and "
        f"{seconds(figures['train_ms'] / 1000)} for training; {figures['gang']:.0f} of "
        f"{figures['devices']:.0f} devices train, and a change to training and back takes "
        f"{seconds(figures['switch_ms'] / 1000)}{loads}"
    )


def _remedy(
    settings: SchedulerSettings,
    figures: Mapping[str, float],
    now: Prediction,
    best: Prediction,
    period_ms: float,
) -> str:
    """Return changes that the run has not made and that would leave less idle.

    `period_ms`: time from one batch to the next, 0 before it was measured.
    """
    strategy = settings.scheduler.policy
    lag = settings.run.lag
    apart = strategy in (COLOCATED, DISAGGREGATED)
    if lag and not apart and period_ms > now.step * _LATE:
        return (
            f"A batch comes every {seconds(period_ms / 1000)}, where its work takes "
            f"{seconds(now.step / 1000)}: its groups take so long, which faster agents, "
            "shorter turns or more lag change"
        )
    if now.step <= best.step:
        return "Less is idle with more groups in a step"
    changes = [
        *(["multiplexed"] if apart else []),
        *([] if lag else ["lag 1 or more"]),
        *(
            [f"{figures['needed']:.0f} or more devices that train"]
            if figures["gang"] < figures["needed"]
            else []
        ),
    ]
    return f"Less is idle with {', '.join(changes)}"


def _training_waits(state: State, snapshot: Snapshot, settings: SchedulerSettings) -> bool:
    """Return whether training workers are late; evaluations need none, and loading is slow."""
    if snapshot.batch:
        return True
    late_ms = milliseconds(settings.scheduler.assignment_timeout_s)
    return settings.pacing.issues and snapshot.now_ms - state.claimed_ms >= late_ms


def _unfit(state: State, snapshot: Snapshot, settings: SchedulerSettings) -> Iterator[Waste]:
    """Yield warnings for tags that do not fit the strategy, once workers had time to join."""
    if not snapshot.workers or snapshot.now_ms - state.claimed_ms < SETTLED_MS:
        return
    tags = [worker.tags for worker in snapshot.workers]
    able = {worker.name for worker in snapshot.workers if "train" in worker.tags}
    trainers = _devices(snapshot, able)
    needed = snapshot.gang_size or 1
    if trainers < needed and _training_waits(state, snapshot, settings):
        detail = f"devices with the tag train: {trainers}; needed: {needed}"
        yield Waste("gang_too_small", detail, 1.0, {"devices": trainers, "needed": needed})
    # A scheduler without tasks is for recorded sessions, or for clients that bring their own.
    expected = settings.pacing.issues or bool(settings.evaluation.splits)
    if expected and not any("rollout" in tag for tag in tags):
        yield Waste("no_rollout_worker", "no worker has the tag rollout", 1.0, {})
    odd = [worker.name for worker in snapshot.workers if len(worker.tags) < 2]
    if settings.scheduler.policy == "colocated" and odd:
        detail = f"colocated uses only workers with both tags, not {', '.join(odd)}"
        yield _unused("unused_workers", detail, snapshot, odd)


def _unused(code: str, detail: str, snapshot: Snapshot, names: Collection[str]) -> Waste:
    idle = _devices(snapshot, names)
    total = _devices(snapshot)
    return Waste(code, detail, idle / total, {"idle_devices": idle, "devices": total})


def _devices(snapshot: Snapshot, names: Collection[str] | None = None) -> int:
    """Return how many devices the named workers have; None: all workers."""
    chosen = [worker for worker in snapshot.workers if names is None or worker.name in names]
    return sum(worker.devices for worker in chosen)
