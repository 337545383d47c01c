"""Strategies on workers of several kinds of devices, while the sessions get longer."""

from pathlib import Path

import pytest

from seamlessflow.infra.device_model.settings import DeviceModelSection, worker_rates
from seamlessflow.infra.worker.updates import UpdateSection
from seamlessflow.lab.simulation.cluster import modelled
from seamlessflow.lab.simulation.figures import figures
from seamlessflow.lab.simulation.settings import SimulatedWorkersSection, SimulationSection
from seamlessflow.lab.simulation.simulator import SimulatedRun, simulate
from seamlessflow.lab.simulation.workload import Workload, WorkloadSection
from seamlessflow.lab.timeline.bars import spent_by_part, waiting_for
from seamlessflow.scheduler.settings import (
    PacingSection,
    RunSection,
    SchedulerSection,
    SchedulerSettings,
)
from seamlessflow.scheduler.state.accounts.device_time import TRAINING
from seamlessflow.scheduler.state.accounts.waits import GANG
from seamlessflow.scheduler.state.timeline import timeline
from seamlessflow.schemas import records as r
from tests.builders.scheduler.inputs import BOTH, scheduler_settings

STEPS, B = 12, 8
SECTION = SimulationSection(
    workers=tuple(
        SimulatedWorkersSection(count=count, tags=BOTH, hardware=hardware)
        for count, hardware in ((2, "H800"), (2, "A100"), (4, "H20"))
    ),
    workload=WorkloadSection(turn_tokens=1000, drift=2, drift_groups=STEPS * B),
)


PAIR = SimulationSection(
    workers=(
        SimulatedWorkersSection(tags=BOTH, hardware="H800"),
        SimulatedWorkersSection(tags=BOTH, hardware="H20"),
    ),
)


def simulated(section: SimulationSection, settings: SchedulerSettings) -> SimulatedRun:
    cluster = modelled(section, DeviceModelSection(), UpdateSection())
    return simulate(settings, cluster, Workload(section.workload))


def run(strategy: str, gang_size: int | None) -> tuple[float, list[set[str]]]:
    """Return trained tokens a second, and the gang of each step."""
    settings = scheduler_settings(
        RunSection(steps=STEPS, groups_per_step=B, group_size=8, lag=1),
        SchedulerSection(policy=strategy, gang_size=gang_size),
        PacingSection(tasks=Path("made up")),
    )
    outcome = simulated(SECTION, settings)
    result = figures(outcome, settings)
    assert result is not None
    started = [record for record in outcome.control if isinstance(record, r.StepStarted)]
    return result.tokens_s, [set(record.workers) for record in started]


def test_adaptive_leaves_slow_devices_out_and_is_as_fast_as_the_best_fixed_size() -> None:
    everyone, _ = run("multiplexed", None)
    fixed = max(run("multiplexed", size)[0] for size in (8, 16))
    adaptive, gangs = run("adaptive", 8)

    assert gangs[-1] == {"w0", "w1"}
    assert adaptive > 1.2 * everyone
    assert adaptive > 0.95 * fixed


def test_a_smaller_gang_takes_longer_to_move_what_training_keeps() -> None:
    whole, half = (
        modelled(PAIR, DeviceModelSection(), UpdateSection(), gang_size).workers["w0"].rates
        for gang_size in (None, 8)
    )

    assert half.take_s == pytest.approx(2 * whole.take_s)
    assert half.wake_s == whole.wake_s


def test_in_a_mixed_gang_only_its_own_part_of_a_step_is_training_of_a_fast_worker() -> None:
    settings = scheduler_settings(
        RunSection(steps=4, groups_per_step=B, group_size=8, lag=0),
        SchedulerSection(policy="colocated"),
        PacingSection(tasks=Path("made up")),
    )

    course = timeline(simulated(PAIR, settings).control)

    spent = spent_by_part(course.intervals, course.training_ms)
    fast_ms, slow_ms = (spent[name][TRAINING] for name in ("w0", "w1"))
    fast_s, slow_s = (
        worker_rates(DeviceModelSection(), 8, hardware=hardware).part([1000.0], 8, 16)
        for hardware in ("H800", "H20")
    )
    assert slow_s > 5 * fast_s
    assert fast_ms / slow_ms == pytest.approx(fast_s / slow_s, rel=0.01)
    assert spent["w0"][waiting_for(GANG)] >= 0.99 * (slow_ms - fast_ms)
    assert spent["w1"].get(waiting_for(GANG), 0.0) < 0.01 * slow_ms
