"""Simulation of a split: a strategy on a modelled cluster, as it is or with other tags.

Called by `seamlessflow plan`.
"""

from dataclasses import replace
from statistics import fmean

from infra.errors import SeamlessFlowError
from scheduler.settings import SchedulerSettings
from scheduler.simulation.cluster import ModelledCluster
from scheduler.simulation.figures import WARM_UP_STEPS, SimulatedFigures, figures, why_none
from scheduler.simulation.simulator import SimulatedRun, simulate_going_on
from scheduler.simulation.workload import Workload
from scheduler.state.accounts.closed_form import COLOCATED, DISAGGREGATED
from seamlessflow.config import RunConfig
from seamlessflow.reports.measured_step import MeasuredStep, measured_step
from seamlessflow.reports.simulated_workers import without_room
from seamlessflow.reports.split_plan import PlannedCluster, SplitChoice

BOTH, ROLLOUT, TRAIN = ("rollout", "train"), ("rollout",), ("train",)
STEPS = 8


class NothingToPlan(SeamlessFlowError):
    """A configuration as it is makes too few steps in the simulator."""

    lasting = True

    def __init__(self, strategy: str, why: str) -> None:
        self.strategy = strategy
        self.why = why
        super().__init__(f"{strategy}: {why}")


def present_step(
    config: RunConfig, cluster: ModelledCluster, strategy: str, lag: int
) -> MeasuredStep:
    """Return the mean step of the configuration as it is. Raises `NothingToPlan`."""
    run, settings = _simulated(config, cluster, strategy, lag, config.scheduler.gang_size)
    if figures(run, settings) is None:
        raise NothingToPlan(strategy, why_none(run, settings))
    return measured_step(run.control, WARM_UP_STEPS)


def simulated_choice(
    config: RunConfig, cluster: ModelledCluster, of: PlannedCluster, one: SplitChoice
) -> tuple[SimulatedFigures | None, str]:
    """Return the figures of a choice, None if it did not make all its steps, and a notice if its
    gang has no room.
    """
    size = config.scheduler.gang_size
    if (one.strategy, one.gang) != (of.strategy, of.gang):
        # A gang of all that have the tag: their number is what is planned.
        cluster, size = split(cluster, one.strategy, one.gang), None
    run, settings = _simulated(config, cluster, one.strategy, one.lag, size)
    return figures(run, settings), without_room(config.device_model, cluster, run.control)


def change_s(cluster: ModelledCluster) -> float:
    """Return the modelled time of a change of role there and back, the mean of all workers."""
    rates = [of.rates for of in cluster.workers.values()]
    return fmean(of.sleep_s + of.take_s + of.leave_s + of.wake_s for of in rates)


def split(cluster: ModelledCluster, strategy: str, gang: int) -> ModelledCluster:
    """Return the cluster with tags for a gang of so many devices, or as few more as whole workers
    allow. Workers that have the tag train now come first.
    """
    ordered = sorted(cluster.workers, key=lambda name: "train" not in cluster.workers[name].tags)
    chosen: set[str] = set()
    for name in ordered:
        if sum(cluster.workers[one].devices for one in chosen) < gang:
            chosen.add(name)
    trains = TRAIN if strategy == DISAGGREGATED else BOTH
    tags = {
        name: BOTH if strategy == COLOCATED else trains if name in chosen else ROLLOUT
        for name in cluster.workers
    }
    workers = {name: replace(of, tags=tags[name]) for name, of in cluster.workers.items()}
    return replace(cluster, workers=workers)


def _simulated(
    config: RunConfig, cluster: ModelledCluster, strategy: str, lag: int, gang_size: int | None
) -> tuple[SimulatedRun, SchedulerSettings]:
    """Return a run of the configuration's work, and its settings."""
    choice = {"policy": strategy, "gang_size": gang_size}
    settings = SchedulerSettings(
        run=config.run.model_copy(update={"lag": lag, "steps": STEPS}),
        scheduler=config.scheduler.model_copy(update=choice),
        pacing=config.pacing,
    )
    workload = Workload(config.simulation.workload, config.simulation.seed)
    return simulate_going_on(settings, cluster, workload), settings
