"""Closed forms of a step's time, without stragglers. Pure.

`step_limits` returns lower bounds of a step's time, by strategy and by the split's speeds.
`predicted` is the time for equal devices. In a step, rollout takes the device time R, training
takes T, and the gang has g of G devices. If changes of role and new weights cost nothing,
`multiplexed` with lag >= 1 leaves no time idle exactly when g/G >= T/(R+T). Used by the strategies
that choose a gang (`scheduler/decisions/strategies/choice.py`), by `scheduler/decisions/waste.py`
and by `seamlessflow plan`; the simulator is held to it (`test_closed_form.py`).

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
    """Work and costs of an optimizer step, all in one unit of time.

    With speeds of another unit, `rollout` and `train` are work in that unit.
    """

    rollout: float
    """Device time of rollout, R."""
    train: float
    """Device time of training, T."""
    switch: float = 0.0
    """Time that a device is away for a change to training and back."""
    back: float = 0.0
    """The change back's time, if `switch` does not include it: no training waits for it."""
    load: float = 0.0
    """Time that a device's rollout stands still for a step's weights."""
    latency: float = 0.0
    """Time from a group's admission until it is ready."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """Speeds of the gang's devices and of others: work in a unit of time."""

    everyone: float
    """Rollout speed of all together."""
    gang: float
    """Rollout speed of the devices that train; it is missing while they train."""
    train: float
    """The gang's training speed: the speed of its slowest device times its devices."""

    @classmethod
    def of_equal(cls, devices: int, gang: int) -> "Split":
        """Return the split for equal devices, each with one unit of work in a unit of time."""
        return cls(everyone=devices, gang=gang, train=gang)

    def training(self, work: StepWork) -> float:
        """Return the time for which the gang trains a step."""
        return work.train / self.train


@dataclass(frozen=True, slots=True)
class Prediction:
    """A step's time, and the share of device time that it leaves idle."""

    step: float
    idle: float
    limit: str
    """A step's longest wait: `work` of all devices, `rollout`, `training`, both (`one after the
    other`), or the groups' `latency`."""


@dataclass(frozen=True, slots=True)
class IdealStep:
    """Two times that no step of a run can be shorter than, in milliseconds."""

    work_ms: float
    """(R + T + switches + loads + recomputed KV) / G."""
    latency_ms: float
    """A group's latency / (lag + 1): at most lag + 1 batches of groups run at once. Extra groups
    count as a fraction of a step of lag."""

    @property
    def ms(self) -> float:
        """Return the longer of the two."""
        return max(self.work_ms, self.latency_ms)


def predicted(strategy: str, devices: int, gang: int, work: StepWork, lag: int) -> Prediction:
    """Return the prediction for a strategy with a closed form; `gang` is 1 to `devices`.

    Without a device that rolls out the step is infinite.
    """
    prediction = _predicted(strategy, devices, gang, work, lag)
    if strategy != MULTIPLEXED:
        return prediction
    # Its gate keeps the gang in training where a change of role costs more than it gains.
    stays = _predicted(DISAGGREGATED, devices, gang, work, lag)
    return stays if stays.step < prediction.step else prediction


def step_limits(strategy: str, split: Split, work: StepWork, lag: int) -> dict[str, float]:
    """Return lower bounds of a step's time, by name, without its groups' latency.

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
    """Return the number of devices in the gang for the shortest step; the least if several are
    equal.

    A gang has whole workers of `unit` devices. The groups' latency is left out: no split of the
    devices shortens it.
    """
    alone = replace(work, latency=0.0)
    # Disaggregated, one worker at least rolls out.
    most = devices if strategy != DISAGGREGATED else max(unit, devices - unit)
    sizes = range(unit, most + 1, unit)
    # The small amount keeps equal times from differing by their rounding.
    return min(
        sizes or [devices],
        key=lambda gang: round(predicted(strategy, devices, gang, alone, lag).step, 9),
    )


def devices_that_train(devices: int, rollout: float, train: float) -> int:
    """Return the least number of devices that must train so that `multiplexed` leaves none idle."""
    # The small amount keeps an exact quotient from being rounded up.
    return max(1, ceil(devices * train / (rollout + train) - 1e-9))


def ideal_step(
    spent: DeviceTime, steps: int, devices: float, group_ms: float, lag: float
) -> IdealStep:
    """Return the ideal step; `spent` is the device time of `steps` steps (1 or more).

    `devices` is G. `group_ms`: the time from a group's admission until it is ready.
    """
    needed = spent.total - spent.subtotal(UNDER_FILLED, WAITING)
    return IdealStep(needed / steps / devices, _latency_limit(group_ms, lag))


def _latency_limit(group: float, lag: float) -> float:
    """Return the least time of a step whose groups take the time `group`, in the same unit."""
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
