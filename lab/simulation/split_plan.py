"""A split's plan: strategies, devices that train and lag compared, and advice. Pure.

It follows the closed form (`scheduler/state/accounts/closed_form.py`). `seamlessflow plan` calls
this.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from seamlessflow.infra.printable import seconds
from seamlessflow.lab.simulation.figures import SimulatedFigures
from seamlessflow.lab.simulation.measured_step import MeasuredStep
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
"""Step times that differ by less than this share of the present step count as equal."""
_GAIN = 0.03
"""Share by which a step must get shorter before a change is advised."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedCluster:
    """A cluster's devices as they are now, and a step's work on them, in seconds."""

    work: StepWork
    devices: int
    gang: int
    """Devices that train together."""
    lag: int
    strategy: str
    """A strategy without a closed form is only simulated."""
    unit: int = 1
    """A worker's devices."""


@dataclass(frozen=True, slots=True)
class SplitChoice:
    """A strategy with a device split and a lag, and the closed form's prediction for it."""

    strategy: str
    gang: int
    lag: int
    prediction: Prediction
    """It has no limit if the strategy has no closed form."""


def planned(
    measured: MeasuredStep, strategy: str | None, lag: int | None
) -> tuple[PlannedCluster, str]:
    """Return the cluster that made a step, and a line about values that were not given.

    A missing strategy follows from role changes. A missing lag is the one in the records, or 1.
    """
    notes = []
    if strategy is None:
        strategy = MULTIPLEXED if measured.changes else DISAGGREGATED
        why = "workers changed their roles" if measured.changes else "no worker changed its role"
        notes.append(f"{strategy}, since {why}")
    if lag is None:
        lag = 1 if measured.lag is None else measured.lag
        notes.append(
            f"lag {lag}, {'assumed' if measured.lag is None else 'as its trainer recorded'}"
        )
    cluster = PlannedCluster(
        work=measured.work,
        devices=measured.devices,
        gang=measured.gang,
        lag=lag,
        strategy=strategy,
        unit=measured.unit,
    )
    return cluster, f"the run is taken as {'; '.join(notes)}" if notes else ""


def choices(cluster: PlannedCluster, tried: Sequence[int] = ()) -> list[SplitChoice]:
    """Return the choices to compare: each strategy and lag, on the present and the best split.

    The closed form gives the best split. With the cluster's own lag, each gang that is `tried` is
    also compared.
    """
    lags = sorted({0, max(1, cluster.lag)})
    names = [*STRATEGIES, *({cluster.strategy} - {*STRATEGIES})]
    return [
        _choice(cluster, strategy, gang, lag)
        for strategy in names
        for gang, lag in sorted(
            (gang, lag)
            for lag in ((0,) if strategy == COLOCATED != cluster.strategy else lags)
            for gang in _gangs(cluster, strategy, lag, tried if lag == cluster.lag else ())
        )
    ]


def as_simulated(
    rows: Sequence[tuple[SplitChoice, SimulatedFigures | None]],
) -> list[SplitChoice]:
    """Return the choices whose simulation ended, with its step time and idle share."""
    return [
        replace(
            choice,
            prediction=replace(
                choice.prediction, step=figures.step_s, idle=figures.spent.idle_share
            ),
        )
        for choice, figures in rows
        if figures is not None
    ]


def advice(cluster: PlannedCluster, compared: Sequence[SplitChoice]) -> tuple[str, str]:
    """Return a sentence about the split and the strategy, and one about staleness.

    `compared` are the choices, with a simulation's predictions if there was one.
    """
    return _split(cluster, compared), _staleness(cluster, compared)


def _gangs(cluster: PlannedCluster, strategy: str, lag: int, tried: Sequence[int]) -> set[int]:
    if strategy == COLOCATED:
        return {cluster.devices, cluster.gang if cluster.strategy == COLOCATED else cluster.devices}
    if strategy not in STRATEGIES:
        return {cluster.gang}
    sizes = {
        cluster.gang,
        best_gang(strategy, cluster.devices, cluster.work, lag, cluster.unit),
        *tried,
    }
    # If disaggregated, at least one worker rolls out.
    return {size for size in sizes if strategy != DISAGGREGATED or size < cluster.devices}


def _choice(cluster: PlannedCluster, strategy: str, gang: int, lag: int) -> SplitChoice:
    modelled = strategy in STRATEGIES
    prediction = (
        predicted(strategy, cluster.devices, gang, cluster.work, lag)
        if modelled
        else Prediction(0, 0, "")
    )
    return SplitChoice(strategy, gang, lag, prediction)


def _split(cluster: PlannedCluster, compared: Sequence[SplitChoice]) -> str:
    rule = _rule(cluster)
    now = _now(cluster, compared, cluster.lag)

    def rank(choice: SplitChoice) -> tuple[float, bool, bool]:
        """Return a choice's sort key: among equally short steps, the least change comes first."""
        return (
            _rounded(choice, now),
            choice.strategy != cluster.strategy,
            choice.gang != cluster.gang,
        )

    # Colocated rolls out and trains in turn, whatever lag is asked for.
    best = min(
        (
            choice
            for choice in compared
            if choice.lag == cluster.lag or choice.strategy == COLOCATED
        ),
        key=rank,
    )
    if best.prediction.step > now.step * (1 - _GAIN):
        text = f"no split makes the step of {seconds(now.step)} shorter by {_GAIN:.0%}"
        return f"{rule}; {text}: {_limit(cluster, now)}."
    train = "device that trains" if best.gang == 1 else "devices that train"
    gang = f" and {best.gang} {train}" if best.prediction.limit else ""
    text = f"takes {seconds(best.prediction.step)} a step instead of {seconds(now.step)}"
    before = f"{now.idle:.0%}"
    after = f"{best.prediction.idle:.0%}"
    idle = f", and leaves {after} idle instead of {before}" if after != before else ""
    return f"{rule}; {best.strategy} with lag {best.lag}{gang} {text}{idle}."


def _rule(cluster: PlannedCluster) -> str:
    """Return how many devices `multiplexed` needs, and whether some still idle."""
    work = cluster.work
    share = f"T/(R+T) is {work.train / (work.rollout + work.train):.2f}"
    gang = f"{cluster.gang} are in the gang of now"
    if not cluster.lag:
        turns = "with lag 0 rollout and training of a step take turns"
        return f"{share}, and {turns}; of {cluster.devices} devices {gang}"
    needed = devices_that_train(cluster.devices, work.rollout, work.train)
    prediction = predicted(MULTIPLEXED, cluster.devices, needed, work, cluster.lag)
    rule = (
        f"multiplexed with lag {cluster.lag} needs {needed} of {cluster.devices} devices "
        "in its gang"
    )
    if prediction.idle < _SAME:
        return f"{share}, so by the closed form {rule} to leave none idle, and {gang}"
    idle = f"and even so leaves {prediction.idle:.0%} idle"
    return f"{share}, so by the closed form {rule} for training, {idle}; {gang}"


def _now(cluster: PlannedCluster, compared: Sequence[SplitChoice], lag: int) -> Prediction:
    """Return the prediction for the present strategy and split with this lag."""
    for choice in compared:
        if (choice.strategy, choice.gang, choice.lag) == (cluster.strategy, cluster.gang, lag):
            return choice.prediction
    return _choice(cluster, cluster.strategy, cluster.gang, lag).prediction


def _rounded(choice: SplitChoice, now: Prediction) -> float:
    """Return the step time in coarse units, so that times that differ little are equal."""
    return round(choice.prediction.step / (now.step * _SAME)) if now.step else 0.0


def _limit(cluster: PlannedCluster, now: Prediction) -> str:
    """Return a step's limit, and the share of device time that its switches and loads take."""
    if now.limit == "latency":
        return "its groups take so long, which faster agents, shorter turns or more lag change"
    if not now.limit:
        return "no closed form tells its limit"
    away = (
        0.0
        if cluster.strategy == DISAGGREGATED
        else cluster.gang / cluster.devices * cluster.work.switch
    )
    costs = {"switches": away / now.step, "loads": cluster.work.load / now.step}
    text = " and ".join(f"{name} {share:.0%}" for name, share in costs.items() if share >= 0.01)
    return f"its limit is {now.limit}" + (
        f", and of all device time it costs {text}" if text else ""
    )


def _staleness(cluster: PlannedCluster, compared: Sequence[SplitChoice]) -> str:
    if cluster.strategy == COLOCATED:
        return "Staleness: colocated rolls out and trains in turn, so lag gains it nothing."
    lag = max(1, cluster.lag)
    fresh, stale = (_now(cluster, compared, number).step for number in (0, lag))
    if not fresh or not stale:
        return f"Staleness: lag {0 if stale else lag} has no figures of {cluster.strategy}."
    return (
        f"Staleness: {cluster.strategy} on the split of now with lag 0 trains only tokens of the "
        f"newest weights, at {seconds(fresh)} a step; lag {lag} trains tokens up to {lag} "
        f"{'step' if lag == 1 else 'steps'} old, at {seconds(stale)}: {_change(stale / fresh)}."
    )


def _change(factor: float) -> str:
    return f"{1 - factor:.0%} less" if factor <= 1 else f"{factor - 1:.0%} more"
