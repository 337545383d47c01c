"""Strategies on workers of several kinds of devices, while the sessions get longer."""

from pathlib import Path

from infra.device_model.settings import DeviceModelSection
from infra.worker.updates import UpdateSection
from scheduler.settings import PacingSection, RunSection, SchedulerSection
from scheduler.simulation.cluster import modelled
from scheduler.simulation.figures import figures
from scheduler.simulation.settings import SimulatedWorkersSection, SimulationSection
from scheduler.simulation.simulator import simulate
from scheduler.simulation.workload import Workload, WorkloadSection
from schemas import records as r
from tests.builders.scheduler.inputs import BOTH, scheduler_settings

STEPS, B = 12, 8
SECTION = SimulationSection(
    workers=tuple(
        SimulatedWorkersSection(count=count, tags=BOTH, hardware=hardware)
        for count, hardware in ((2, "H800"), (2, "A100"), (4, "H20"))
    ),
    workload=WorkloadSection(turn_tokens=1000, drift=2, drift_groups=STEPS * B),
)


def run(strategy: str, gang_size: int | None) -> tuple[float, list[set[str]]]:
    """Return trained tokens a second, and the gang of each step."""
    settings = scheduler_settings(
        RunSection(steps=STEPS, groups_per_step=B, group_size=8, lag=1),
        SchedulerSection(policy=strategy, gang_size=gang_size),
        PacingSection(tasks=Path("made up")),
    )
    outcome = simulate(
        settings,
        modelled(SECTION, DeviceModelSection(), UpdateSection()),
        Workload(SECTION.workload),
    )
    found = figures(outcome, settings)
    assert found is not None
    started = [record for record in outcome.control if isinstance(record, r.StepStarted)]
    return found.tokens_s, [set(record.workers) for record in started]


def test_adaptive_leaves_slow_devices_out_and_is_as_fast_as_the_best_fixed_size() -> None:
    everyone, _ = run("multiplexed", None)
    fixed = max(run("multiplexed", size)[0] for size in (8, 16))
    adaptive, gangs = run("adaptive", 8)

    assert gangs[-1] == {"w0", "w1"}
    assert adaptive > 1.2 * everyone
    assert adaptive > 0.95 * fixed
