"""Simulation of a split: a strategy on a modelled cluster whose workers get other tags.

Called by `seamlessflow plan`.
"""

from dataclasses import replace
from statistics import fmean

from scheduler.settings import SchedulerSettings
from scheduler.simulation.cluster import ModelledCluster
from scheduler.simulation.simulator import SimulatedRun, simulate
from scheduler.simulation.workload import Workload
from scheduler.state.accounts.closed_form import COLOCATED, DISAGGREGATED
from seamlessflow.config import RunConfig

BOTH, ROLLOUT, TRAIN = ("rollout", "train"), ("rollout",), ("train",)


def simulated(
    config: RunConfig, cluster: ModelledCluster, strategy: str, lag: int, steps: int
) -> tuple[SimulatedRun, SchedulerSettings]:
    """Return a run of the configuration's work, and its settings."""
    settings = SchedulerSettings(
        run=config.run.model_copy(update={"lag": lag, "steps": steps}),
        # A gang of all that have the tag: their number is what is planned.
        scheduler=config.scheduler.model_copy(update={"policy": strategy, "gang_size": None}),
        pacing=config.pacing,
    )
    workload = Workload(config.simulation.workload, config.simulation.seed)
    return simulate(settings, cluster, workload), settings


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
