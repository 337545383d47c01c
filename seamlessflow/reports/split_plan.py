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
    STRATEGIES,
    Prediction,
    StepWork,
    best_gang,
    devices_that_train,
    predicted,
)
from seamlessflow.reports.measured_step import MeasuredStep

_SAME = 0.02
"""Difference of two step times below which they count as equal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedCluster:
    """The devices of a cluster as they are now, and the work of a step on them; in seconds."""

    work: StepWork
    devices: int
    gang: int
    """Devices that train together."""
    lag: int
    strategy: str
    """One without a closed form is only simulated."""
    unit: int = 1
    """Devices of a worker."""


@dataclass(frozen=True, slots=True)
class SplitChoice:
    """A strategy with a split of the devices and a lag, and what the closed form says of it."""

    strategy: str
    gang: int
    lag: int
    prediction: Prediction
    """Without a limit where the closed form knows nothing of the strategy."""


def planned(
    found: MeasuredStep, strategy: str | None, lag: int | None
) -> tuple[PlannedCluster, str]:
    """Return the cluster that made a step, and a line about what was not given: the strategy
    follows from changes of role, the lag is that of the records, or 1.
    """
    told = []
    if strategy is None:
        strategy = MULTIPLEXED if found.changes else DISAGGREGATED
        why = "workers changed their roles" if found.changes else "no worker changed its role"
        told.append(f"{strategy}, since {why}")
    if lag is None:
        lag = 1 if found.lag is None else found.lag
        told.append(f"lag {lag}, {'assumed' if found.lag is None else 'as its trainer recorded'}")
    of = PlannedCluster(
        work=found.work,
        devices=found.devices,
        gang=found.gang,
        lag=lag,
        strategy=strategy,
        unit=found.unit,
    )
    return of, f"the run is taken as {'; '.join(told)}" if told else ""


def choices(of: PlannedCluster) -> list[SplitChoice]:
    """Return the choices to compare: each strategy on the present split and on its best one."""
    lags = sorted({0, max(1, of.lag)})
    return [
        _choice(of, strategy, gang, lag)
        for strategy, gangs in _splits(of)
        for gang in gangs
        for lag in ((0,) if strategy == COLOCATED != of.strategy else lags)
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
    """Return a sentence about the split and the strategy, and one about staleness.

    `found` are the choices, with the predictions of a simulation if there was one.
    """
    return _split(of, found), _staleness(of, found)


def seconds(value: float) -> str:
    """Return a time with three digits, from 1,000 s on with all of them."""
    return f"{value:.3g} s" if value < 999.5 else f"{value:,.0f} s"


def _splits(of: PlannedCluster) -> Iterator[tuple[str, list[int]]]:
    lag = max(1, of.lag)
    yield COLOCATED, sorted({of.devices, of.gang if of.strategy == COLOCATED else of.devices})
    if of.devices > of.unit:
        best = best_gang(DISAGGREGATED, of.devices, of.work, lag, of.unit)
        now = [of.gang] if of.gang < of.devices else []
        yield DISAGGREGATED, sorted({*now, best})
    best = best_gang(MULTIPLEXED, of.devices, of.work, lag, of.unit)
    yield MULTIPLEXED, sorted({of.gang, best})
    if of.strategy not in STRATEGIES:
        yield of.strategy, [of.gang]


def _choice(of: PlannedCluster, strategy: str, gang: int, lag: int) -> SplitChoice:
    known = strategy in STRATEGIES
    told = predicted(strategy, of.devices, gang, of.work, lag) if known else Prediction(0, 0, "")
    return SplitChoice(strategy, gang, lag, told)


def _split(of: PlannedCluster, found: Sequence[SplitChoice]) -> str:
    needed = devices_that_train(of.devices, of.work.rollout, of.work.train)
    share = of.work.train / (of.work.rollout + of.work.train)
    rule = f"T/(R+T) is {share:.2f}, so multiplexed with lag 1 needs {needed} of {of.devices}"
    rule += f" devices in its gang to leave none idle, and {of.gang} are in the gang of now"
    now = _now(of, found, of.lag)

    def rank(one: SplitChoice) -> tuple[float, bool, bool, int]:
        """Return the order of choices: of equally short steps, the least change first."""
        change = one.strategy != of.strategy, one.gang != of.gang, abs(one.lag - of.lag)
        return _rounded(one, now), *change

    best = min(found, key=rank)
    if best.prediction.step > now.step * (1 - _SAME):
        return f"{rule}; no split makes the step of {seconds(now.step)} shorter: {_limit(now)}."
    train = "device that trains" if best.gang == 1 else "devices that train"
    gang = f" and {best.gang} {train}" if best.prediction.limit else ""
    return (
        f"{rule}; {best.strategy} with lag {best.lag}{gang} takes "
        f"{seconds(best.prediction.step)} a step instead of {seconds(now.step)}, and leaves "
        f"{best.prediction.idle:.0%} idle instead of {now.idle:.0%}."
    )


def _now(of: PlannedCluster, found: Sequence[SplitChoice], lag: int) -> Prediction:
    """Return the prediction for the strategy and split of now with this lag."""
    for one in found:
        if (one.strategy, one.gang, one.lag) == (of.strategy, of.gang, lag):
            return one.prediction
    return _choice(of, of.strategy, of.gang, lag).prediction


def _rounded(one: SplitChoice, now: Prediction) -> float:
    """Return the step time in units in which times that differ little are equal."""
    return round(one.prediction.step / (now.step * _SAME)) if now.step else 0.0


def _limit(of: Prediction) -> str:
    if of.limit == "latency":
        return "its groups take so long, which faster agents, shorter turns or more lag change"
    if not of.limit:
        return "no closed form tells its limit"
    return f"its limit is {of.limit}"


def _staleness(of: PlannedCluster, found: Sequence[SplitChoice]) -> str:
    if of.strategy == COLOCATED:
        return "Staleness: colocated rolls out and trains in turn, so lag gains it nothing."
    lag = max(1, of.lag)
    fresh, stale = (_now(of, found, number).step for number in (0, lag))
    if not fresh or not stale:
        return f"Staleness: lag {0 if stale else lag} has no figures of {of.strategy}."
    return (
        f"Staleness: {of.strategy} on the split of now with lag 0 trains only tokens of the newest "
        f"weights, at {seconds(fresh)} a step; lag {lag} trains tokens up to {lag} "
        f"{'step' if lag == 1 else 'steps'} old, at {seconds(stale)}: {_change(stale / fresh)}."
    )


def _change(factor: float) -> str:
    return f"{1 - factor:.0%} less" if factor <= 1 else f"{factor - 1:.0%} more"
