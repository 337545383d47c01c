"""Cells in the benchmark `pipelines`: a pipeline, a load and a node split, simulated."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Literal

from seamlessflow.config import RunConfig
from seamlessflow.infra.device_model.settings import DeviceModelSection
from seamlessflow.lab.simulation.figures import figures
from seamlessflow.lab.simulation.settings import SimulatedWorkersSection, SimulationSection
from seamlessflow.lab.simulation.simulator import SimulatedRun
from seamlessflow.lab.simulation.workload import WorkloadSection
from seamlessflow.reports.variant import AS_IT_IS, Variant
from seamlessflow.reports.variant import simulated as simulate_variant
from seamlessflow.scheduler.settings import (
    PacingSection,
    RunSection,
    SchedulerSection,
    SchedulerSettings,
)

NODE = 8
"""Devices per node. A worker is a node, so splits are in whole nodes."""
GROUP = 8
"""Sessions per group."""
MODEL, HARDWARE = "Qwen3-32B", "H100"
_LAST_DROPPED = 0.5
"""Share of groups that the filter drops at a drift's end: each trained one takes twice the rollout
that it took at the beginning.
"""
_NO_LIMIT_S = 1e6
Tag = Literal["rollout", "train"]
BOTH: tuple[Tag, ...] = ("rollout", "train")


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A strategy, the training nodes' tags, and the steps that rollout may be ahead."""

    name: str
    strategy: str
    lag: int
    trains: tuple[Tag, ...]


COLOCATED = Pipeline("colocated synchronous", "colocated", 0, BOTH)
SYNCHRONOUS = Pipeline("disaggregated synchronous", "disaggregated", 0, ("train",))
# Less strict than the published one, which trains whole batches (lab/simulation/agents.py).
ONE_STEP_OFF = Pipeline("one step off", "disaggregated", 1, ("train",))
MULTIPLEXED = Pipeline("multiplexed", "multiplexed", 1, BOTH)
PIPELINES = (COLOCATED, SYNCHRONOUS, ONE_STEP_OFF, MULTIPLEXED)


@dataclass(frozen=True, slots=True)
class Load:
    """One kind of session, a step's groups for each node, and an engine's rows."""

    name: str
    workload: WorkloadSection
    groups: int
    rows: int
    drifts: bool = False
    """True if the filter drops more and more groups, so that R:T doubles over the run."""

    @property
    def title(self) -> str:
        """Name, with what changes over the run."""
        return f"{self.name}, {'R:T drifts twofold' if self.drifts else 'steady'}"


_STEADY = (
    Load(
        "math, single turn",
        WorkloadSection(
            turns=1,
            prompt_tokens=500,
            turn_tokens=6000,
            spread=0.6,
            most_tokens=24_000,
            tool_s=0,
        ),
        groups=8,
        rows=16,
    ),
    Load(
        "agentic, long tails and tool waits",
        WorkloadSection(
            turns=6,
            turns_spread=0.5,
            prompt_tokens=3000,
            tool_tokens=1000,
            turn_tokens=1000,
            spread=0.8,
            tool_s=8,
            tool_spread=1.0,
        ),
        groups=8,
        rows=16,
    ),
    Load(
        "small train share",
        WorkloadSection(
            turns=1,
            prompt_tokens=500,
            turn_tokens=6000,
            spread=0.6,
            most_tokens=24_000,
            tool_s=0,
        ),
        groups=4,
        rows=4,
    ),
)
LOADS = tuple(replace(load, drifts=drifts) for load in _STEADY for drifts in (False, True))


@dataclass(frozen=True, slots=True)
class Cell:
    """One simulation: `nodes` nodes, of which `train` train."""

    pipeline: Pipeline
    load: Load
    nodes: int
    train: int
    steps: int


@dataclass(frozen=True, slots=True)
class Measured:
    """A cell's figures."""

    cell: Cell
    step_s: float
    ideal_s: float
    idle: float
    waiting: float
    under_filled: float
    switching: float
    staleness: float
    tokens_s: float


def measured(cell: Cell) -> Measured:
    """Return a simulated cell's figures. Raises `RuntimeError` if it makes too few steps."""
    run, settings = simulated(cell)
    summary = figures(run, settings)
    if summary is None:
        raise RuntimeError(f"{cell} made {len(run.tokens)} of {cell.steps} steps")
    shares = summary.spent.shares()
    return Measured(
        cell,
        summary.step_s,
        summary.ideal_s,
        summary.spent.idle_share,
        shares["waiting"],
        shares["under_filled"],
        shares["switching"],
        summary.staleness,
        summary.tokens_s,
    )


def simulated(cell: Cell) -> tuple[SimulatedRun, SchedulerSettings]:
    """Return a cell's run, as one that goes on, and its settings."""
    groups = cell.load.groups * cell.nodes
    run = RunSection(
        steps=cell.steps, groups_per_step=groups, group_size=GROUP, lag=cell.pipeline.lag
    )
    pacing = PacingSection(
        tasks=Path("simulated"), task_timeout_s=_NO_LIMIT_S, group_timeout_s=_NO_LIMIT_S
    )
    config = RunConfig(
        run=run,
        scheduler=SchedulerSection(policy=cell.pipeline.strategy),
        pacing=pacing,
        simulation=SimulationSection(
            workers=_workers(cell), rows=cell.load.rows, workload=cell.load.workload
        ),
        device_model=DeviceModelSection(model=MODEL, hardware=HARDWARE),
    )
    drifts = Variant(filtered=dropped_later(cell.steps * groups))
    return simulate_variant(config, drifts if cell.load.drifts else AS_IT_IS)


def dropped_later(trained: int) -> Callable[[str], bool]:
    """Return the filter that drops none of the first groups and half of the last ones.

    `trained`: how many groups are trained in all.
    """
    drawn = trained / (1 - _LAST_DROPPED / 2)  # nearly: the share grows evenly

    def dropped(group: str) -> bool:
        number = int(group.rpartition("-")[2])
        share = _LAST_DROPPED * min(1.0, number / drawn)
        return Random(f"filter/{group}").random() < share  # nosec B311 # repeatable draws

    return dropped


def _workers(cell: Cell) -> tuple[SimulatedWorkersSection, ...]:
    lots = {cell.pipeline.trains: cell.train, ("rollout",): cell.nodes - cell.train}
    return tuple(
        SimulatedWorkersSection(count=count, tags=tags, devices=NODE)
        for tags, count in lots.items()
        if count
    )
