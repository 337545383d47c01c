"""Plan of a split: strategies, devices that train and lag compared, and advice. Pure.

Of the closed form (`scheduler/state/accounts/closed_form.py`). Called by `seamlessflow plan`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from seamlessflow.lab.simulation.figures import SimulatedFigures
from seamlessflow.reports.measured_step import MeasuredStep
from seamlessflow.scheduler.state.accounts.closed_form import (
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

_SAME = 0.02
"""Difference of two step times below which they count as equal."""
_GAIN = 0.03
"""Part of a step below which a shorter one is no advice."""


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


def choices(of: PlannedCluster, tried: Sequence[int] = ()) -> list[SplitChoice]:
    """Return the choices to compare: each strategy and lag on the present split and on the best one
    by its own formula; with the lag of the plan also on each gang that is `tried`.
    """
    lags = sorted({0, max(1, of.lag)})
    names = [*STRATEGIES, *({of.strategy} - {*STRATEGIES})]
    return [
        _choice(of, strategy, gang, lag)
        for strategy in names
        for gang, lag in sorted(
            (gang, lag)
            for lag in ((0,) if strategy == COLOCATED != of.strategy else lags)
            for gang in _gangs(of, strategy, lag, tried if lag == of.lag else ())
        )
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


def _gangs(of: PlannedCluster, strategy: str, lag: int, tried: Sequence[int]) -> set[int]:
    if strategy == COLOCATED:
        return {of.devices, of.gang if of.strategy == COLOCATED else of.devices}
    if strategy not in STRATEGIES:
        return {of.gang}
    found = {of.gang, best_gang(strategy, of.devices, of.work, lag, of.unit), *tried}
    # Disaggregated, one worker at least rolls out.
    return {one for one in found if strategy != DISAGGREGATED or one < of.devices}


def _choice(of: PlannedCluster, strategy: str, gang: int, lag: int) -> SplitChoice:
    known = strategy in STRATEGIES
    told = predicted(strategy, of.devices, gang, of.work, lag) if known else Prediction(0, 0, "")
    return SplitChoice(strategy, gang, lag, told)


def _split(of: PlannedCluster, found: Sequence[SplitChoice]) -> str:
    rule, now = _rule(of), _now(of, found, of.lag)

    def rank(one: SplitChoice) -> tuple[float, bool, bool]:
        """Return the order of choices: of equally short steps, the least change first."""
        return _rounded(one, now), one.strategy != of.strategy, one.gang != of.gang

    # Colocated rolls out and trains in turn, whatever lag is asked for.
    best = min((one for one in found if one.lag == of.lag or one.strategy == COLOCATED), key=rank)
    if best.prediction.step > now.step * (1 - _GAIN):
        told = f"no split makes the step of {seconds(now.step)} shorter by {_GAIN:.0%}"
        return f"{rule}; {told}: {_limit(of, now)}."
    train = "device that trains" if best.gang == 1 else "devices that train"
    gang = f" and {best.gang} {train}" if best.prediction.limit else ""
    told = f"takes {seconds(best.prediction.step)} a step instead of {seconds(now.step)}"
    before, after = f"{now.idle:.0%}", f"{best.prediction.idle:.0%}"
    idle = f", and leaves {after} idle instead of {before}" if after != before else ""
    return f"{rule}; {best.strategy} with lag {best.lag}{gang} {told}{idle}."


def _rule(of: PlannedCluster) -> str:
    """Return the number of devices that `multiplexed` needs, and whether some idle even so."""
    work = of.work
    share = f"T/(R+T) is {work.train / (work.rollout + work.train):.2f}"
    gang = f"{of.gang} are in the gang of now"
    if not of.lag:
        turns = "with lag 0 rollout and training of a step take turns"
        return f"{share}, and {turns}; of {of.devices} devices {gang}"
    needed = devices_that_train(of.devices, work.rollout, work.train)
    told = predicted(MULTIPLEXED, of.devices, needed, work, of.lag)
    rule = f"multiplexed with lag {of.lag} needs {needed} of {of.devices} devices in its gang"
    if told.idle < _SAME:
        return f"{share}, so by the closed form {rule} to leave none idle, and {gang}"
    idle = f"and even so leaves {told.idle:.0%} idle"
    return f"{share}, so by the closed form {rule} for training, {idle}; {gang}"


def _now(of: PlannedCluster, found: Sequence[SplitChoice], lag: int) -> Prediction:
    """Return the prediction for the strategy and split of now with this lag."""
    for one in found:
        if (one.strategy, one.gang, one.lag) == (of.strategy, of.gang, lag):
            return one.prediction
    return _choice(of, of.strategy, of.gang, lag).prediction


def _rounded(one: SplitChoice, now: Prediction) -> float:
    """Return the step time in units in which times that differ little are equal."""
    return round(one.prediction.step / (now.step * _SAME)) if now.step else 0.0


def _limit(of: PlannedCluster, now: Prediction) -> str:
    """Return the limit of a step, and what its switches and loads take of it."""
    if now.limit == "latency":
        return "its groups take so long, which faster agents, shorter turns or more lag change"
    if not now.limit:
        return "no closed form tells its limit"
    away = 0.0 if of.strategy == DISAGGREGATED else of.gang / of.devices * of.work.switch
    costs = {"switches": away / now.step, "loads": of.work.load / now.step}
    told = " and ".join(f"{name} {share:.0%}" for name, share in costs.items() if share >= 0.01)
    return f"its limit is {now.limit}" + (
        f", and of all device time it costs {told}" if told else ""
    )


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
