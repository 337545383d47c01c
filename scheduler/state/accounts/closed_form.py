"""Closed forms for a step's time, without stragglers. Pure.

`step_limits` returns lower bounds for a step's time, by strategy and by the split's speeds.
`predicted` is the time for equal devices. In a step, rollout takes the device time R, training
takes T, and the gang has g of G devices. If role changes and new weights cost nothing,
`multiplexed` with lag >= 1 leaves no time idle exactly when g/G >= T/(R+T). The strategies that
choose a gang use it (`scheduler/decisions/strategies/choice.py`), and so do
`scheduler/decisions/waste.py` and `seamlessflow plan`. A test compares the simulator with it
(`test_closed_form.py`).

`ideal_step` is the shortest time for the work and the groups that a run had, whatever its strategy.
"""

from dataclasses import dataclass, replace
from math import ceil, inf

from seamlessflow.scheduler.state.accounts.device_time import UNDER_FILLED, WAITING, DeviceTime

COLOCATED = "colocated"
DISAGGREGATED = "disaggregated"
MULTIPLEXED = "multiplexed"
STRATEGIES = (COLOCATED, DISAGGREGATED, MULTIPLEXED)
"""Strategies that have a closed form."""
WORK = "work"
ROLLOUT = "rollout"
TRAINING = "training"
IN_TURN = "one after the other"
LATENCY = "latency"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepWork:
    """Work and costs of an optimizer step, all in one time unit.

    If speeds use another unit, `rollout` and `train` are work in that unit.
    """

    rollout: float
    """Rollout's device time, R."""
    train: float
    """Training's device time, T."""
    switch: float = 0.0
    """Time that a device loses by changing to training and back."""
    back: float = 0.0
    """Time for changing back, if `switch` leaves it out: no training waits for it."""
    load: float = 0.0
    """Time that a device's rollout stands still for a step's weights."""
    latency: float = 0.0
    """Time from a group's admission until it is ready."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """Speeds of the gang's devices and the others: work in a time unit."""

    everyone: float
    """Rollout speed of all devices together."""
    gang: float
    """Rollout speed of the devices that train; it is missing while they train."""
    train: float
    """The gang's training speed: the speed of its slowest device times its devices."""

    @classmethod
    def of_equal(cls, devices: int, gang: int) -> "Split":
        """Return the split for equal devices, each doing one unit of work in a time unit."""
        return cls(everyone=devices, gang=gang, train=gang)

    def training(self, work: StepWork) -> float:
        """Return how long the gang trains for a step."""
        return work.train / self.train


@dataclass(frozen=True, slots=True)
class Prediction:
    """A step's time, and the share of device time that it leaves idle."""

    step: float
    idle: float
    limit: str
    """A step's longest wait.

    `work` for all devices, `rollout`, `training`, both (`one after the other`), or the groups'
    `latency`.
    """


@dataclass(frozen=True, slots=True)
class IdealStep:
    """Two lower bounds for a run's step time, in milliseconds."""

    work_ms: float
    """(R + T + switches + loads + recomputed KV) / G."""
    latency_ms: float
    """A group's latency / (lag + 1): at most lag + 1 batches of groups run at once.

    Extra groups count as a fraction of one step of lag.
    """

    @property
    def ms(self) -> float:
        """The longer of the two."""
        return max(self.work_ms, self.latency_ms)


def predicted(strategy: str, devices: int, gang: int, work: StepWork, lag: int) -> Prediction:
    """Return the prediction for a strategy with a closed form; `gang` is 1 to `devices`.

    If no device rolls out, the step is infinite.
    """
    prediction = _predicted(strategy, devices, gang, work, lag)
    if strategy != MULTIPLEXED:
        return prediction
    # Its gate keeps the gang in training if a role change costs more than it gains.
    stays = _predicted(DISAGGREGATED, devices, gang, work, lag)
    return stays if stays.step < prediction.step else prediction


def step_limits(strategy: str, split: Split, work: StepWork, lag: int) -> dict[str, float]:
    """Return lower bounds for a step's time, by name, without its groups' latency.

    For `colocated` the gang is everyone. For `multiplexed` the gang changes roles; a gang that
    stays in training is `disaggregated`.
    """
    train = split.training(work)
    ready = train + work.switch
    if strategy == DISAGGREGATED:
        rolls = _time(work.rollout, split.everyone - split.gang) + work.load
        return {ROLLOUT: rolls, TRAINING: train} if lag else {IN_TURN: rolls + train}
    if strategy == MULTIPLEXED and lag:
        # While the gang is away, its part of the rollout is missing.
        missing = split.gang * (ready + work.back)
        together = _time(work.rollout + missing, split.everyone) + work.load
        return {WORK: together, TRAINING: ready}
    in_turn = _time(work.rollout, split.everyone) + ready + work.back + work.load
    return {WORK if strategy == COLOCATED else IN_TURN: in_turn}


def best_gang(strategy: str, devices: int, work: StepWork, lag: int, unit: int = 1) -> int:
    """Return the gang's device count for the shortest step; the smallest of equal counts.

    A gang has whole workers with `unit` devices each. The groups' latency is left out: no split of
    the devices shortens it.
    """
    alone = replace(work, latency=0.0)
    # Disaggregated, at least one worker rolls out.
    most = devices if strategy != DISAGGREGATED else max(unit, devices - unit)
    sizes = range(unit, most + 1, unit)
    # Rounding keeps equal times from differing in their last digits.
    return min(
        sizes or [devices],
        key=lambda gang: round(predicted(strategy, devices, gang, alone, lag).step, 9),
    )


def devices_that_train(devices: int, rollout: float, train: float) -> int:
    """Return how many devices must train, at least, for `multiplexed` to leave none idle."""
    # The small amount keeps an exact quotient from being rounded up.
    return max(1, ceil(devices * train / (rollout + train) - 1e-9))


def ideal_step(
    spent: DeviceTime, steps: int, devices: float, group_ms: float, lag: float
) -> IdealStep:
    """Return the ideal step; `spent` is the device time for `steps` steps (1 or more).

    `devices` is G. `group_ms`: the time from a group's admission until it is ready.
    """
    needed = spent.total - spent.subtotal(UNDER_FILLED, WAITING)
    return IdealStep(needed / steps / devices, _latency_limit(group_ms, lag))


def _latency_limit(group: float, lag: float) -> float:
    """Return the least time for a step whose groups take the time `group`, in the same unit."""
    return group / (lag + 1)


def _predicted(strategy: str, devices: int, gang: int, work: StepWork, lag: int) -> Prediction:
    split = Split.of_equal(devices, devices if strategy == COLOCATED else gang)
    limits = {
        **step_limits(strategy, split, work, lag),
        LATENCY: _latency_limit(work.latency, lag),
    }
    limit = max(limits, key=lambda name: limits[name])
    step = limits[limit]
    useful = work.rollout + work.train
    idle = max(0.0, 1 - useful / (devices * step)) if step > 0 else 0.0
    return Prediction(step, idle, limit)


def _time(work: float, speed: float) -> float:
    return work / speed if speed > 0 else inf
