"""Whole runs on modelled clusters: bubbles, thrashing, leaks, hung groups."""

import itertools
from collections.abc import Mapping
from pathlib import Path

import pytest

from seamlessflow.lab.simulation.simulator import SimulatedRun, simulate
from seamlessflow.lab.simulation.workload import Workload
from seamlessflow.scheduler.decisions.strategies.registry import STRATEGIES
from seamlessflow.scheduler.settings import PacingSection, RunSection, SchedulerSection
from seamlessflow.scheduler.state.accounts.closed_form import StepWork, predicted
from seamlessflow.scheduler.state.accounts.device_time import together
from seamlessflow.scheduler.state.timeline import timeline
from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Record
from tests.builders.scheduler.cluster import cluster, workload
from tests.builders.scheduler.inputs import BOTH, scheduler_settings

B, SIZE = 4, 4
ROLLOUT, TRAIN = ("rollout",), ("train",)
SAMPLE_MS = 100.0
ROLLOUT_MS = B * SIZE * SAMPLE_MS
"""Device time of a step's rollout."""


def run(
    strategy: str,
    lag: int,
    workers: Mapping[str, tuple[str, ...]],
    train_ms: float = 1000,
    switch_ms: float = 0,
    steps: int = 12,
    pacing: PacingSection | None = None,
    sessions: Workload | None = None,
    gang_size: int | None = None,
    whole_batches: bool = False,
) -> SimulatedRun:
    sessions = sessions or workload()
    turns = sessions.section.turns
    return simulate(
        scheduler_settings(
            RunSection(steps=steps, groups_per_step=B, group_size=SIZE, lag=lag),
            SchedulerSection(policy=strategy, min_dwell_s=0, gang_size=gang_size),
            pacing or PacingSection(tasks=Path("made up")),
        ),
        cluster(workers, SAMPLE_MS, train_ms, B * SIZE, switch_ms=switch_ms, turns=round(turns)),
        sessions,
        whole_batches=whole_batches,
    )


def count(outcome: SimulatedRun, kind: type[Record]) -> int:
    return sum(isinstance(record, kind) for record in outcome.control)


def idle_share(outcome: SimulatedRun) -> float:
    """Return the idle share between the ends of the second step and of the last."""
    course = timeline(outcome.control)
    window = (course.steps[2].at_ms, course.steps[-1].at_ms)
    return together(course.device_time(window).values()).idle_share


def fleet(trainers: int, others: int, tags: tuple[str, ...] = BOTH) -> dict[str, tuple[str, ...]]:
    names = {f"t{number}": tags for number in range(trainers)}
    return {**names, **{f"r{number}": ROLLOUT for number in range(others)}}


def test_multiplexed_has_the_predicted_bubble_when_too_few_train() -> None:
    outcome = run("multiplexed", 1, fleet(1, 3), train_ms=3200)

    idle = predicted("multiplexed", 4, 1, StepWork(rollout=ROLLOUT_MS, train=3200), 1).idle
    assert idle > 0.5
    assert idle_share(outcome) == pytest.approx(idle, abs=0.05)
    assert count(outcome, r.PlanWarning) >= 1


@pytest.mark.parametrize("lag", [0, 1])
def test_disaggregated_overlaps_rollout_and_training_only_with_lag(lag: int) -> None:
    outcome = run("disaggregated", lag, fleet(2, 2, TRAIN), train_ms=1600)

    idle = predicted("disaggregated", 4, 2, StepWork(rollout=ROLLOUT_MS, train=1600), lag).idle
    assert idle_share(outcome) == pytest.approx(idle, abs=0.08)
    assert max(outcome.staleness) <= lag


def test_colocated_is_always_on_policy_without_lag() -> None:
    outcome = run("colocated", 0, fleet(4, 0), train_ms=800)

    assert max(outcome.staleness) == 0
    assert idle_share(outcome) < 0.05


def test_a_worker_goes_to_training_and_back_once_a_step() -> None:
    outcome = run("multiplexed", 1, fleet(1, 3), train_ms=100, switch_ms=10)

    assert count(outcome, r.RoleAssigned) <= 4 + 2 * 12


def test_a_worker_stays_in_training_when_switching_takes_longer_than_the_pause() -> None:
    outcome = run(
        "multiplexed",
        1,
        fleet(2, 6),
        train_ms=600,
        switch_ms=2_000,
        steps=20,
        sessions=workload(spread=0.2),
    )

    assert count(outcome, r.RoleAssigned) < 8 + 2 * 20
    assert count(outcome, r.StepCompleted) == 20


@pytest.mark.parametrize("lag", [0, 1, 2])
def test_groups_begun_stop_at_the_credits_of_a_slow_trainer_and_go_on_with_each_step(
    lag: int,
) -> None:
    outcome = run("multiplexed", lag, fleet(1, 3), train_ms=8 * ROLLOUT_MS, steps=5)

    begun, trained, most = 0, 0, 0
    for record in outcome.control:
        begun += isinstance(record, r.GroupAdmitted)
        trained += B * isinstance(record, r.StepCompleted)
        most = max(most, begun - trained)
    assert most == (lag + 1) * B
    assert (begun, count(outcome, r.StepCompleted)) == (5 * B, 5)
    assert max(outcome.staleness) <= lag


def test_no_credit_leaks_when_groups_are_filtered() -> None:
    third = workload(filtered=lambda group: int(group[4:]) % 3 == 0)
    outcome = run("multiplexed", 1, fleet(2, 2), steps=20, sessions=third)

    ledger = outcome.view.state.first.ledger
    assert ledger.trained == 20 * B
    assert ledger.admitted == ledger.trained + ledger.dropped + len(ledger.groups)


def test_when_all_groups_are_filtered_steps_are_left_out_and_the_refill_holds() -> None:
    outcome = run(
        "multiplexed",
        1,
        fleet(1, 1),
        sessions=workload(filtered=lambda group: int(group[4:]) < 40),
    )

    skipped = count(outcome, r.StepSkipped)
    assert skipped >= 1
    assert count(outcome, r.GroupDropped) == 40
    assert count(outcome, r.StepCompleted) == 12, "a skipped step does not shorten the run"


HANGS = PacingSection(
    tasks=Path("made up"), task_timeout_s=5, task_grace_s=1, group_timeout_s=20, max_attempts=2
)


def test_a_sample_that_hangs_once_is_tried_again() -> None:
    def hangs(group: str, sample: int, attempt: int) -> bool:
        return (group, sample, attempt) == ("run-2", 0, 0)

    outcome = run("multiplexed", 1, fleet(1, 1), pacing=HANGS, sessions=workload(hangs=hangs))

    assert count(outcome, r.GroupExpired) == 0
    assert count(outcome, r.StepCompleted) == 12


def test_a_group_that_hangs_for_ever_blocks_no_step() -> None:
    """Holds invariant I8."""

    def hangs(group: str, sample: int, attempt: int) -> bool:
        return group == "run-2"

    outcome = run("multiplexed", 1, fleet(1, 1), pacing=HANGS, sessions=workload(hangs=hangs))

    ends = [record.at_ms for record in outcome.control if isinstance(record, r.StepCompleted)]
    assert max(after - before for before, after in itertools.pairwise(ends)) < 5_000
    assert len(ends) == 12


def test_a_run_whose_sessions_all_take_too_long_ends_and_says_why() -> None:
    """A simulation of such settings went on nearly for ever."""
    short = HANGS.model_copy(update={"task_timeout_s": 0.15, "group_timeout_s": 2})
    outcome = run("multiplexed", 1, fleet(1, 1), pacing=short, sessions=workload(turns=2))

    assert count(outcome, r.StepCompleted) == 0
    assert "sessions took longer than pacing.task_timeout_s (0.15 s" in outcome.vain
    assert outcome.overdue > 0


def test_a_run_whose_groups_are_all_filtered_ends_and_says_why() -> None:
    outcome = run("multiplexed", 1, fleet(1, 1), sessions=workload(filtered=lambda group: True))

    assert count(outcome, r.StepCompleted) == 0
    assert "they were filtered" in outcome.vain


def test_a_session_is_stopped_at_its_deadline_in_the_middle_of_a_turn() -> None:
    """Its engine is free for others; a turn that was sampled to its end held them up."""
    slow = workload(swing=1000, swing_groups=1)
    limits = HANGS.model_copy(update={"task_timeout_s": 4, "group_timeout_s": 9})
    outcome = run("multiplexed", 1, fleet(1, 1), steps=2, pacing=limits, sessions=slow)

    assert count(outcome, r.GroupExpired) > 0
    assert count(outcome, r.StepCompleted) == 2
    assert outcome.ended_s < 1000 * SAMPLE_MS / 1000, "shorter than one such turn"


@pytest.mark.parametrize("strategy", ["bidirectional", "adaptive"])
def test_rollout_workers_help_a_step_once_one_was_measured(strategy: str) -> None:
    alone = run("multiplexed", 1, fleet(4, 0), train_ms=1600, switch_ms=10, gang_size=1)
    helped = run(strategy, 1, fleet(4, 0), train_ms=1600, switch_ms=10, gang_size=1)

    gangs = [record.workers for record in helped.control if isinstance(record, r.StepStarted)]
    assert len(gangs[0]) == 1
    assert len(gangs[-1]) > 1
    assert helped.ended_s < 0.8 * alone.ended_s


def test_the_same_run_is_the_same_log() -> None:
    outcomes = [
        run("multiplexed", 1, fleet(1, 2), sessions=workload(turns=3, spread=0.5, seed=7))
        for _ in range(2)
    ]

    assert outcomes[0].control == outcomes[1].control


def test_no_worker_gets_a_role_outside_its_tags() -> None:
    for strategy in STRATEGIES:
        outcome = run(strategy, 1, {**fleet(2, 2), "t9": TRAIN}, switch_ms=10)

        roles = {
            (record.worker[0], record.role)
            for record in outcome.control
            if isinstance(record, r.RoleAcquired)
        }
        assert roles <= {("t", "train"), ("t", "rollout"), ("r", "rollout")}
        assert ("t9", "rollout") not in {
            (record.worker, record.role)
            for record in outcome.control
            if isinstance(record, r.RoleAcquired)
        }


def batches(outcome: SimulatedRun) -> list[list[str]]:
    """Return the groups of each batch, sorted."""
    return [sorted(record.groups) for record in outcome.control if isinstance(record, r.BatchReady)]


def test_whole_batches_are_trained_as_they_began_and_lag_alone_takes_what_is_ready_first() -> None:
    def uneven(whole: bool) -> SimulatedRun:
        workers, sessions = fleet(1, 3, TRAIN), workload(spread=1.5)
        return run(
            "disaggregated", 1, workers, train_ms=400, sessions=sessions, whole_batches=whole
        )

    free, whole = uneven(False), uneven(True)
    admitted = [record.group_id for record in whole.control if isinstance(record, r.GroupAdmitted)]
    in_order = [sorted(admitted[at : at + B]) for at in range(0, len(admitted), B)]
    assert batches(whole) == in_order[: len(batches(whole))]
    assert batches(free) != in_order[: len(batches(free))]
    steps = [timeline(outcome.control).step_ms or 0.0 for outcome in (free, whole)]
    assert steps[0] < steps[1], "a whole batch waits for its longest session"
    assert whole.staleness and max(whole.staleness) == 1


def test_a_group_that_is_dropped_is_replaced_in_its_whole_batch() -> None:
    sessions = workload(filtered=lambda group: group.endswith("3"))
    outcome = run("disaggregated", 1, fleet(1, 3, TRAIN), sessions=sessions, whole_batches=True)
    assert count(outcome, r.StepCompleted) == 12
    assert all(len(batch) == B for batch in batches(outcome))
