"""Closed forms of the time of a step, without stragglers. Pure.

`predicted` is the time by strategy and split of the devices. Let R and T be the device time that
rollout and training of a step take, and g of G devices be in the gang. Then `multiplexed` with
lag >= 1 leaves no time idle exactly when g/G >= T/(R+T), if changes of role and new weights cost
nothing. Used by `scheduler/decisions/waste.py` and `seamlessflow plan`; the simulator is held to it
(`test_closed_form.py`).

`ideal_step` is the shortest time for the work and the groups that a run had, whatever its strategy.
"""

from dataclasses import dataclass, replace
from math import ceil, inf

from seamlessflow.scheduler.state.accounts.device_time import UNDER_FILLED, WAITING, DeviceTime

COLOCATED, DISAGGREGATED, MULTIPLEXED = "colocated", "disaggregated", "multiplexed"
STRATEGIES = (COLOCATED, DISAGGREGATED, MULTIPLEXED)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepWork:
    """Work and costs of an optimizer step, all in one unit of time."""

    rollout: float
    """Device time of rollout, R."""
    train: float
    """Device time of training, T."""
    switch: float = 0.0
    """Time that a device is away for a change to training and back."""
    load: float = 0.0
    """Time that a device's rollout stands still for a step's weights."""
    latency: float = 0.0
    """Time from a group's admission until it is ready."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """The time of a step, and the share of device time that it leaves idle."""

    step: float
    idle: float
    limit: str
    """Longest of what a step waits for: `work` of all devices, `rollout`, `training`, the sum of
    both (`one after the other`), or the groups' `latency`."""


@dataclass(frozen=True, slots=True)
class IdealStep:
    """Two times that no step of a run can be shorter than, in milliseconds."""

    work_ms: float
    """(R + T + switches + loads + recomputed KV) / G."""
    latency_ms: float
    """A group's latency / (lag + 1): at most lag + 1 batches of groups run at once, and the extra
    ones, which count as parts of a step of lag.
    """

    @property
    def ms(self) -> float:
        """Return the longer of the two."""
        return max(self.work_ms, self.latency_ms)


def predicted(strategy: str, devices: int, gang: int, work: StepWork, lag: int) -> Prediction:
    """Return the prediction for a built-in strategy; `gang` is 1 to `devices`.

    The step of a split without a device that rolls out is infinite.
    """
    prediction = _predicted(strategy, devices, gang, work, lag)
    if strategy != MULTIPLEXED or gang >= devices:
        return prediction
    # Its gate keeps the gang in training where a change of role costs more than it gains.
    stays = _predicted(DISAGGREGATED, devices, gang, work, lag)
    return stays if stays.step < prediction.step else prediction


def best_gang(strategy: str, devices: int, work: StepWork, lag: int, unit: int = 1) -> int:
    """Return the number of devices in the gang for the shortest step, the least of equals.

    A gang is of whole workers of `unit` devices. What groups wait for is left out: no split of the
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
    """Return the ideal step where `spent` is the device time of so many steps (1 or more).

    `devices` is G. `group_ms`: the time from a group's admission until it is ready.
    """
    needed = spent.total - spent.of(UNDER_FILLED, WAITING)
    return IdealStep(needed / steps / devices, _latency_limit(group_ms, lag))


def _latency_limit(group: float, lag: float) -> float:
    """Return the least time of a step whose groups take so long, in the same unit."""
    return group / (lag + 1)


def _predicted(strategy: str, devices: int, gang: int, work: StepWork, lag: int) -> Prediction:
    limits = {
        **_limits(strategy, devices, gang, work, lag),
        "latency": _latency_limit(work.latency, lag),
    }
    limit = max(limits, key=lambda name: limits[name])
    step = limits[limit]
    useful = work.rollout + work.train
    idle = max(0.0, 1 - useful / (devices * step)) if step > 0 else 0.0
    return Prediction(step, idle, limit)


def _limits(strategy: str, devices: int, gang: int, work: StepWork, lag: int) -> dict[str, float]:
    """Return the times that a step cannot be shorter than, by name."""
    # `alone`: the gang's time for training. `together`: the time of a step if no device waits.
    alone = work.train / gang
    if strategy == COLOCATED:
        together = (work.rollout + work.train) / devices
        return {"work": together + work.switch + work.load}
    if strategy == DISAGGREGATED:
        rolls = work.rollout / (devices - gang) + work.load if gang < devices else inf
        if lag:
            return {"rollout": rolls, "training": alone}
        return {"one after the other": rolls + alone}
    if lag:
        away = gang * work.switch + devices * work.load
        together = (work.rollout + work.train + away) / devices
        return {"work": together, "training": alone + work.switch}
    return {"one after the other": work.rollout / devices + alone + work.switch + work.load}
