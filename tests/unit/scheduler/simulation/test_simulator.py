"""Whole runs on modelled clusters: bubbles, thrashing, leaks, hung groups."""

import itertools
from pathlib import Path

import pytest

from scheduler.decisions.waste import predicted_idle
from scheduler.settings import PacingSection, RunSection, SchedulerSection
from scheduler.simulation.fleet import ClusterModel
from scheduler.simulation.simulator import SimulatedRun, simulate
from schemas import records as r
from tests.builders.scheduler.inputs import BOTH, scheduler_settings

B, SIZE = 4, 4
ROLLOUT, TRAIN = ("rollout",), ("train",)


def run(
    strategy: str,
    lag: int,
    cluster: ClusterModel,
    steps: int = 12,
    pacing: PacingSection | None = None,
) -> SimulatedRun:
    return simulate(
        scheduler_settings(
            RunSection(steps=steps, groups_per_step=B, group_size=SIZE, lag=lag),
            SchedulerSection(policy=strategy, min_dwell_s=0),
            pacing or PacingSection(tasks=Path("made up")),
        ),
        cluster,
    )


def fleet(trainers: int, others: int, tags: tuple[str, ...] = BOTH) -> dict[str, tuple[str, ...]]:
    names = {f"t{number}": tags for number in range(trainers)}
    return {**names, **{f"r{number}": ROLLOUT for number in range(others)}}


ROLLOUT_MS = B * SIZE * 100.0
"""Worker time of a step's rollout in these clusters."""


@pytest.mark.parametrize("lag", [1, 2])
def test_multiplexed_has_no_bubble_when_enough_workers_train(lag: int) -> None:
    outcome = run("multiplexed", lag, ClusterModel(workers=fleet(2, 2), train_ms=800))

    assert outcome.idle_share() < 0.05
    assert max(outcome.staleness) <= lag


def test_multiplexed_has_the_predicted_bubble_when_too_few_train() -> None:
    outcome = run("multiplexed", 1, ClusterModel(workers=fleet(1, 3), train_ms=3200))

    predicted = predicted_idle("multiplexed", 4, 1, ROLLOUT_MS, 3200, 1)
    assert predicted > 0.5
    assert outcome.idle_share() == pytest.approx(predicted, abs=0.05)
    assert outcome.count(r.PlanWarning) >= 1


@pytest.mark.parametrize("lag", [0, 1])
def test_disaggregated_overlaps_rollout_and_training_only_with_lag(lag: int) -> None:
    outcome = run("disaggregated", lag, ClusterModel(workers=fleet(2, 2, TRAIN), train_ms=1600))

    predicted = predicted_idle("disaggregated", 4, 2, ROLLOUT_MS, 1600, lag)
    assert outcome.idle_share() == pytest.approx(predicted, abs=0.08)
    assert max(outcome.staleness) <= lag


def test_colocated_is_always_on_policy_without_lag() -> None:
    outcome = run("colocated", 0, ClusterModel(workers=fleet(4, 0), train_ms=800))

    assert max(outcome.staleness) == 0
    assert outcome.idle_share() < 0.05


def test_a_worker_goes_to_training_and_back_once_a_step() -> None:
    outcome = run("multiplexed", 1, ClusterModel(workers=fleet(1, 3), train_ms=100, switch_ms=10))

    assert outcome.count(r.RoleAssigned) <= 4 + 2 * 12


def test_a_worker_stays_in_training_when_switching_takes_longer_than_the_pause() -> None:
    dear = ClusterModel(workers=fleet(2, 6), train_ms=600, switch_ms=2_000, spread=0.2)
    outcome = run("multiplexed", 1, dear, steps=20)

    assert outcome.count(r.RoleAssigned) < 8 + 2 * 20
    assert outcome.count(r.StepCompleted) == 20


@pytest.mark.parametrize("lag", [0, 1, 2])
def test_groups_begun_stop_at_the_credits_of_a_slow_trainer_and_go_on_with_each_step(
    lag: int,
) -> None:
    slow = ClusterModel(workers=fleet(1, 3), train_ms=8 * ROLLOUT_MS)
    outcome = run("multiplexed", lag, slow, steps=5)

    begun, trained, most = 0, 0, 0
    for record in outcome.control:
        begun += isinstance(record, r.GroupAdmitted)
        trained += B * isinstance(record, r.StepCompleted)
        most = max(most, begun - trained)
    assert most == (lag + 1) * B
    assert (begun, outcome.count(r.StepCompleted)) == (5 * B, 5)
    assert max(outcome.staleness) <= lag


def test_no_credit_leaks_when_groups_are_filtered() -> None:
    third = ClusterModel(workers=fleet(2, 2), filtered=lambda group: int(group[4:]) % 3 == 0)
    outcome = run("multiplexed", 1, third, steps=20)

    ledger = outcome.view.state.ledger
    assert ledger.trained == 20 * B
    assert ledger.admitted == ledger.trained + ledger.dropped + len(ledger.groups)


def test_when_all_groups_are_filtered_steps_are_left_out_and_the_refill_holds() -> None:
    outcome = run(
        "multiplexed",
        1,
        ClusterModel(workers=fleet(1, 1), filtered=lambda group: int(group[4:]) < 40),
    )

    skipped = outcome.count(r.StepSkipped)
    assert skipped >= 1
    assert outcome.count(r.GroupDropped) == 40
    assert outcome.count(r.StepCompleted) == 12, "a skipped step does not shorten the run"


HANGS = PacingSection(
    tasks=Path("made up"), task_timeout_s=5, task_grace_s=1, group_timeout_s=20, max_attempts=2
)


def test_a_sample_that_hangs_once_is_tried_again() -> None:
    def hangs(group: str, sample: int, attempt: int) -> bool:
        return (group, sample, attempt) == ("run-2", 0, 0)

    outcome = run("multiplexed", 1, ClusterModel(workers=fleet(1, 1), hangs=hangs), pacing=HANGS)

    assert outcome.count(r.GroupExpired) == 0
    assert outcome.count(r.StepCompleted) == 12


def test_a_group_that_hangs_for_ever_blocks_no_step() -> None:
    """Holds invariant I8."""

    def hangs(group: str, sample: int, attempt: int) -> bool:
        return group == "run-2"

    outcome = run("multiplexed", 1, ClusterModel(workers=fleet(1, 1), hangs=hangs), pacing=HANGS)

    ends = [record.at_ms for record in outcome.control if isinstance(record, r.StepCompleted)]
    assert max(after - before for before, after in itertools.pairwise(ends)) < 5_000
    assert len(ends) == 12


def test_the_same_run_is_the_same_log() -> None:
    cluster = ClusterModel(workers=fleet(1, 2), spread=0.5, seed=7)

    assert run("multiplexed", 1, cluster).control == run("multiplexed", 1, cluster).control
