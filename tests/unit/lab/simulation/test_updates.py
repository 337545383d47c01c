"""Weight updates of simulated workers: who stands still when, and how stale tokens get."""

from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest

from seamlessflow.infra.worker.updates import UpdateSection
from seamlessflow.lab.simulation.simulator import SimulatedRun, simulate
from seamlessflow.scheduler.settings import PacingSection, RunSection, SchedulerSection
from seamlessflow.schemas import records as r
from tests.builders.scheduler.cluster import cluster, workload
from tests.builders.scheduler.inputs import scheduler_settings

LOAD_S = 0.1
WORKERS = {"t": ("train",), **{f"r{number}": ("rollout",) for number in range(4)}}


def run(mode: Literal["together", "rolling", "idle"], lag: int, at_most: int = 1) -> SimulatedRun:
    settings = scheduler_settings(
        RunSection(steps=12, groups_per_step=8, group_size=4, lag=lag),
        SchedulerSection(policy="disaggregated", min_dwell_s=0),
        PacingSection(tasks=Path("made up")),
    )
    # The workers are busy for all of a step: a step is trained twice as fast as it is sampled.
    modelled = cluster(WORKERS, 100, 400, 32, turns=2)
    workers = {
        name: replace(worker, rates=replace(worker.rates, load_s=LOAD_S))
        for name, worker in modelled.workers.items()
    }
    update = UpdateSection(mode=mode, at_most=at_most)
    cluster_of = replace(modelled, workers=workers, update=update)
    return simulate(settings, cluster_of, workload(turns=2, spread=0.5))


def most_paused(outcome: SimulatedRun) -> int:
    paused = most = 0
    for record in outcome.control:
        paused += isinstance(record, r.GenerationPaused) - isinstance(record, r.GenerationResumed)
        most = max(most, paused)
    return most


def stepped(outcome: SimulatedRun) -> int:
    return sum(isinstance(record, r.StepCompleted) for record in outcome.control)


def test_of_four_workers_three_serve_while_weights_roll_over_them() -> None:
    together, rolling = run("together", 1), run("rolling", 1)

    assert (stepped(together), stepped(rolling)) == (12, 12)
    assert (most_paused(together), most_paused(rolling)) == (4, 1)
    assert most_paused(run("rolling", 1, at_most=2)) == 2


@pytest.mark.parametrize("mode", ["together", "rolling", "idle"])
@pytest.mark.parametrize("lag", [1, 2])
def test_almost_no_session_is_older_than_the_lag(
    mode: Literal["together", "rolling", "idle"], lag: int
) -> None:
    outcome = run(mode, lag)

    # A group may be overtaken by one that began under newer weights: the trainer masks its tokens.
    older = [age for age in outcome.staleness if age > lag]
    assert stepped(outcome) == 12
    assert len(older) <= 0.02 * len(outcome.staleness)


def test_a_worker_that_waits_until_it_is_idle_stops_fewer_turns() -> None:
    def stopped(outcome: SimulatedRun) -> int:
        return sum(
            record.running for record in outcome.control if isinstance(record, r.GenerationPaused)
        )

    together = stopped(run("together", 1))
    assert stopped(run("idle", 1)) < together
    assert stopped(run("rolling", 1)) < together
