"""Plan of a split: strategies, devices that train and lag compared, and advice. Pure.

Of the closed form (`scheduler/state/accounts/closed_form.py`). Called by `seamlessflow plan`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from scheduler.simulation.figures import SimulatedFigures
from scheduler.state.accounts.closed_form import (
    COLOCATED,
    DISAGGREGATED,
    MULTIPLEXED,
    Prediction,
    StepWork,
    best_gang,
    devices_that_train,
    predicted,
)

_SAME = 0.02
"""Difference of two step times below which they count as equal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedCluster:
    """The devices of a cluster as they are now, and the work of a step on them; in seconds."""

    work: StepWork
    devices: int
    gang: int
    """Devices with the tag train."""
    lag: int
    strategy: str
    unit: int = 1
    """Devices of a worker."""


@dataclass(frozen=True, slots=True)
class SplitChoice:
    """A strategy with a split of the devices and a lag, and what the closed form says of it."""

    strategy: str
    gang: int
    lag: int
    prediction: Prediction


def choices(of: PlannedCluster) -> list[SplitChoice]:
    """Return the choices to compare: each strategy on the present split and on its best one."""
    lags = sorted({0, max(1, of.lag)})
    return [
        _choice(of, strategy, gang, lag)
        for strategy, gangs in _splits(of)
        for gang in gangs
        for lag in ((0,) if strategy == COLOCATED else lags)
    ]


def as_simulated(
    found: Sequence[tuple[SplitChoice, SimulatedFigures | None]],
) -> list[SplitChoice]:
    """Return the choices whose simulation ended, with its step time and idle share."""
    return [
        replace(one, prediction=replace(one.prediction, step=of.step_s, idle=of.spent.idle_share))
        for one, of in found
        if of is not None
    ]


def advice(of: PlannedCluster, found: Sequence[SplitChoice]) -> tuple[str, str]:
    """Return a sentence about the tags and the strategy, and one about staleness.

    `found` are the choices, with the predictions of a simulation if there was one.
    """
    return _tags(of, found), _staleness(of, found)


def seconds(value: float) -> str:
    """Return a time with three digits, from 1,000 s on with all of them."""
    return f"{value:.3g} s" if value < 999.5 else f"{value:,.0f} s"


def _splits(of: PlannedCluster) -> Iterator[tuple[str, list[int]]]:
    lag = max(1, of.lag)
    yield COLOCATED, [of.devices]
    if of.devices > of.unit:
        best = best_gang(DISAGGREGATED, of.devices, of.work, lag, of.unit)
        now = [of.gang] if of.gang < of.devices else []
        yield DISAGGREGATED, sorted({*now, best})
    best = best_gang(MULTIPLEXED, of.devices, of.work, lag, of.unit)
    yield MULTIPLEXED, sorted({of.gang, best})


def _choice(of: PlannedCluster, strategy: str, gang: int, lag: int) -> SplitChoice:
    return SplitChoice(strategy, gang, lag, predicted(strategy, of.devices, gang, of.work, lag))


def _tags(of: PlannedCluster, found: Sequence[SplitChoice]) -> str:
    needed = devices_that_train(of.devices, of.work.rollout, of.work.train)
    share = of.work.train / (of.work.rollout + of.work.train)
    rule = f"T/(R+T) is {share:.2f}, so multiplexed with lag 1 needs {needed} of {of.devices}"
    rule += f" devices with the tag train to leave none idle, and {of.gang} have it"
    now = _now(of, found, of.lag)

    def rank(one: SplitChoice) -> tuple[float, bool, bool, int]:
        """Return the order of choices: of equally short steps, the least change first."""
        change = one.strategy != of.strategy, one.gang != of.gang, abs(one.lag - of.lag)
        return _rounded(one, now), *change

    best = min(found, key=rank)
    if best.prediction.step > now.step * (1 - _SAME):
        return f"{rule}; no tag makes the step of {seconds(now.step)} shorter: {_limit(now)}."
    train = "device that trains" if best.gang == 1 else "devices that train"
    return (
        f"{rule}; {best.strategy} with lag {best.lag} and {best.gang} {train} takes "
        f"{seconds(best.prediction.step)} a step instead of {seconds(now.step)}, and leaves "
        f"{best.prediction.idle:.0%} idle instead of {now.idle:.0%}."
    )


def _now(of: PlannedCluster, found: Sequence[SplitChoice], lag: int) -> Prediction:
    """Return the prediction for the strategy and split of now with this lag."""
    gang = of.devices if of.strategy == COLOCATED else of.gang
    for one in found:
        if (one.strategy, one.gang) == (of.strategy, gang) and one.lag == lag:
            return one.prediction
    return _choice(of, of.strategy, gang, lag).prediction


def _rounded(one: SplitChoice, now: Prediction) -> float:
    """Return the step time in units in which times that differ little are equal."""
    return round(one.prediction.step / (now.step * _SAME)) if now.step else 0.0


def _limit(of: Prediction) -> str:
    if of.limit == "latency":
        return "its groups take so long, which faster agents, shorter turns or more lag change"
    return f"its limit is {of.limit}"


def _staleness(of: PlannedCluster, found: Sequence[SplitChoice]) -> str:
    if of.strategy == COLOCATED:
        return "Staleness: colocated rolls out and trains in turn, so lag gains it nothing."
    lag = max(1, of.lag)
    fresh, stale = (_now(of, found, number).step for number in (0, lag))
    return (
        f"Staleness: {of.strategy} on the split of now with lag 0 trains only tokens of the newest "
        f"weights, at {seconds(fresh)} a step; lag {lag} trains tokens up to {lag} "
        f"{'step' if lag == 1 else 'steps'} old, at {seconds(stale)}: {_change(stale / fresh)}."
    )


def _change(factor: float) -> str:
    return f"{1 - factor:.0%} less" if factor <= 1 else f"{factor - 1:.0%} more"
