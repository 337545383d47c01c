"""A simulation of a configuration's run: as configured, or with changes. Pure.

Only here does a configuration become a simulation's settings, cluster and workload. Called by
`seamlessflow simulate`, `seamlessflow plan` and the benchmark `pipelines`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from seamlessflow.config import RunConfig
from seamlessflow.lab.simulation.cluster import ModelledCluster, modelled
from seamlessflow.lab.simulation.settings import SimulatedWorkersSection
from seamlessflow.lab.simulation.simulator import SimulatedRun, simulate_going_on
from seamlessflow.lab.simulation.workload import Workload
from seamlessflow.reports.simulated_workers import sessions_at_once
from seamlessflow.scheduler.settings import SchedulerSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """Changes to a configuration for one simulation; without any it is simulated as it is."""

    run: Mapping[str, Any] = field(default_factory=dict)
    """Changes to the section `run`, such as its lag."""
    scheduler: Mapping[str, Any] = field(default_factory=dict)
    """Changes to the section `scheduler`, such as its policy."""
    workers: tuple[SimulatedWorkersSection, ...] | None = None
    """Workers instead of those in the section `simulation`."""
    filtered: Callable[[str], bool] = lambda group: False
    """Returns True for a group that the trainer drops."""


AS_IT_IS = Variant()


def settings_of(config: RunConfig, variant: Variant = AS_IT_IS) -> SchedulerSettings:
    """Return the scheduler's settings in a simulation of the configuration."""
    return SchedulerSettings(
        run=config.run.model_copy(update=dict(variant.run)),
        scheduler=config.scheduler.model_copy(update=dict(variant.scheduler)),
        pacing=config.pacing,
    )


def cluster_of(config: RunConfig, variant: Variant = AS_IT_IS) -> ModelledCluster:
    """Return the cluster in the section `simulation`. Raises `UnknownPreset` or `ModelTooLarge`."""
    section = config.simulation
    if variant.workers is not None:
        section = section.model_copy(update={"workers": variant.workers})
    gang_size = settings_of(config, variant).scheduler.gang_size
    sessions = sessions_at_once(config)
    return modelled(section, config.device_model, config.rollout.update, gang_size, sessions)


def simulated(
    config: RunConfig,
    variant: Variant = AS_IT_IS,
    on_step: Callable[[int], None] = lambda steps: None,
) -> tuple[SimulatedRun, SchedulerSettings]:
    """Simulate the configuration's work as a run that goes on; return the run and its settings.

    Calls `on_step` with the step count after each step. Raises what `cluster_of` raises.
    """
    settings = settings_of(config, variant)
    section = config.simulation
    workload = Workload(section.workload, section.seed, filtered=variant.filtered)
    cluster = cluster_of(config, variant)
    run = simulate_going_on(settings, cluster, workload, on_step, section.whole_batches)
    return run, settings
