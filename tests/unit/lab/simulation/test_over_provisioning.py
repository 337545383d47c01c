"""Groups beyond a batch: shorter runs under long tails, and none of them is lost or used twice."""

from collections import Counter
from functools import cache, reduce
from pathlib import Path

import pytest

from seamlessflow.infra.device_model.settings import DeviceModelSection
from seamlessflow.infra.worker.updates import UpdateSection
from seamlessflow.lab.simulation.cluster import modelled
from seamlessflow.lab.simulation.settings import SimulatedWorkersSection, SimulationSection
from seamlessflow.lab.simulation.simulator import SimulatedRun, simulate
from seamlessflow.lab.simulation.workload import Workload, WorkloadSection
from seamlessflow.scheduler.settings import PacingSection, RunSection, SchedulerSection
from seamlessflow.scheduler.state import serving
from seamlessflow.scheduler.state.serving import ServingProcesses
from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Record
from tests.builders.scheduler.cluster import cluster, workload
from tests.builders.scheduler.inputs import BOTH, scheduler_settings

B, SIZE, STEPS = 4, 4, 20
WORKERS = {f"w{number}": BOTH for number in range(4)}


@cache
def run(extra: float, longest_s: float = 1e6) -> SimulatedRun:
    """Return a synchronous run of sessions with log-normal lengths."""
    workers = SimulatedWorkersSection(count=4, tags=BOTH, devices=8)
    section = SimulationSection(workers=(workers,))
    devices = DeviceModelSection(model="Qwen3-8B", hardware="H100")
    return simulate(
        scheduler_settings(
            RunSection(steps=STEPS, groups_per_step=B, group_size=SIZE, lag=0),
            SchedulerSection(policy="colocated", min_dwell_s=0),
            PacingSection(tasks=Path("made up"), extra_groups=extra),
        ),
        modelled(section, devices, UpdateSection()),
        Workload(WorkloadSection(turns=1, turn_tokens=1000, spread=1.0, tool_s=0)),
        longest_s,
    )


@cache
def redundant(redundancy: int) -> SimulatedRun:
    """Return a run in which a sample of each group hangs for ever, at every attempt."""
    return simulate(
        scheduler_settings(
            RunSection(steps=5, groups_per_step=B, group_size=SIZE, lag=0),
            SchedulerSection(policy="colocated", min_dwell_s=0),
            PacingSection(tasks=Path("made up"), redundancy=redundancy, group_timeout_s=1000),
        ),
        cluster(WORKERS, 1000, 1000, B * SIZE, rows=2 * SIZE),
        workload(spread=1.0, hangs=lambda group, sample, attempt: sample == 1),
    )


def trained(outcome: SimulatedRun) -> Counter[str]:
    commits = [record for record in outcome.control if isinstance(record, r.StepCommitted)]
    return Counter(group.group_id for commit in commits for group in commit.groups)


def test_twice_the_groups_and_recycling_make_a_run_shorter_than_waiting_for_all() -> None:
    assert run(1.0).ended_s < 0.7 * run(0).ended_s
    assert max(run(0).ages) == 0 < max(run(1.0).ages)


@pytest.mark.parametrize("longest_s", [30, 1e6])
def test_every_group_begun_is_in_one_step_or_still_under_way(longest_s: float) -> None:
    outcome = run(1.0, longest_s)
    steps, ledger = trained(outcome), outcome.view.state.first.ledger

    begun = {record.group_id for record in outcome.control if isinstance(record, r.GroupAdmitted)}
    assert set(steps.values()) == {1}
    assert begun == steps.keys() | ledger.groups.keys()
    assert steps.keys() & ledger.groups.keys() <= {
        name for name, group in ledger.groups.items() if group.trained_version is not None
    }
    if longest_s > 30:
        assert (len(steps), len(ledger.groups)) == (STEPS * B, 0), "none begins for no step"


def test_what_was_sampled_before_an_update_is_trained_behind_it() -> None:
    sampled = sum(run(1.0).ages.values())

    assert sampled == pytest.approx(sum(run(0).ages.values()), rel=1e-6), "the same sessions"


def test_with_one_environment_hung_for_ever_each_batch_completes_from_the_redundant_samples() -> (
    None
):
    assert redundant(0).ended_s > 5 * 1000, "each group waits for its deadline"
    assert redundant(2).ended_s < 100
    ready = [record for record in redundant(2).control if isinstance(record, r.GroupReady)]
    assert len(ready) == 5 * B == len(trained(redundant(2)))
    assert redundant(2).cancelled > 0


def test_with_redundancy_the_sessions_that_are_trained_are_the_short_ones() -> None:
    def mean(outcome: SimulatedRun) -> float:
        return sum(outcome.ages.values()) / len(outcome.staleness) / outcome.mean_drawn

    assert mean(redundant(2)) < 0.9
    assert mean(run(1.0)) == pytest.approx(1)


def folded(*control: Record) -> ServingProcesses:
    return reduce(serving.apply, control, ServingProcesses())


def test_a_group_that_goes_on_ends_at_its_own_deadline() -> None:
    outcome = simulate(
        scheduler_settings(
            RunSection(steps=3, groups_per_step=B, group_size=SIZE, lag=0),
            SchedulerSection(policy="colocated", min_dwell_s=0),
            PacingSection(
                tasks=Path("made up"), extra_groups=0.5, task_timeout_s=20, group_timeout_s=30
            ),
        ),
        cluster(WORKERS, 1000, 1000, B * SIZE, rows=2 * SIZE),
        workload(hangs=lambda group, sample, attempt: group == "run-1"),
    )
    (dropped,) = (record for record in outcome.control if isinstance(record, r.GroupDropped))
    (admitted,) = (
        record
        for record in outcome.control
        if isinstance(record, r.GroupAdmitted) and record.group_id == "run-1"
    )
    stood_ms = sum(end - begin for begin, end in folded(*outcome.control).stands)
    assert stood_ms > 0, "steps train on the devices of the engines"
    assert (dropped.group_id, dropped.at_ms) == ("run-1", admitted.deadline_ms + stood_ms)
    assert len(trained(outcome)) == 3 * B
