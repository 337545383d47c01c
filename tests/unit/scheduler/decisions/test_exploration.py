"""Explorations: how many begin, and which of their sessions are sampled again."""

from dataclasses import replace

from seamlessflow.scheduler.decisions.exploration import extremes, placed
from seamlessflow.scheduler.sampling.settings import SamplerSection
from seamlessflow.scheduler.state.ledger import AdmittedGroup, source_arm, task_arm
from seamlessflow.schemas import records as r
from seamlessflow.schemas.identity import session_id
from tests.builders.records import control
from tests.builders.scheduler.exploring import (
    BEST,
    CREDITS,
    SAMPLES,
    UNDER_WAY,
    WORST,
    ExploringRun,
)

MIXED = (0.0, 1.0, 0.5, 0.2, 1.0, 0.0, 0.7, 1.0)
CHOSEN = (0, 4, 5, 7)
"""Samples with the two lowest and the two highest returns; of equal ones, see `extremes`."""
EQUAL = (1.0,) * SAMPLES
GROUP = AdmittedGroup(
    task_id="task", purpose="train", version=0, admitted_ms=0, deadline_ms=1, ready=True
)
SAMPLER = SamplerSection(name="explore")


def explored_run(*returns: tuple[float, ...]) -> tuple[ExploringRun, list[r.GroupAdmitted]]:
    """Return a run behind explorations with these returns, and what it admits then."""
    run = ExploringRun()
    for group, values in zip(run.admit(), returns, strict=False):
        run.explore(group.group_id, values)
    return run, run.decided()


def test_tasks_are_explored_first_so_many_at_once_and_without_a_credit() -> None:
    run = ExploringRun()
    admitted = run.admit()
    assert [group.group_id for group in admitted] == [
        f"run-explore-{number}" for number in range(UNDER_WAY)
    ]
    assert {group.purpose for group in admitted} == {"explore"}
    assert {group.group_size for group in admitted} == {SAMPLES}
    assert len({group.task_id for group in admitted}) == UNDER_WAY
    assert not run.state.first.ledger.training
    assert run.decided() == []


def test_the_best_and_the_worst_of_an_exploration_are_sampled_again_with_their_seeds() -> None:
    run, (again, *_) = explored_run(MIXED)
    assert (again.purpose, again.group_id, again.explored) == ("train", "run-0", "run-explore-0")
    assert [seed.session_id for seed in again.seeds] == [
        session_id("run-explore-0", sample, 0) for sample in CHOSEN
    ]
    assert [seed.value for seed in again.seeds] == [MIXED[sample] for sample in CHOSEN]
    assert [seed.text for seed in again.seeds] == [f"text-{sample}" for sample in CHOSEN]
    assert again.group_size == BEST + WORST
    assert again.sampler == "explore"
    assert again.sampler_figures == {
        "explored": 8.0,
        "lowest": 0.0,
        "highest": 1.0,
        "mean": 0.55,
        "best": 2.0,
        "worst": 2.0,
    }
    run.happen(again)
    tasks = [task for task in run.issued() if task.group_id == "run-0"]
    assert [task.seed_session for task in tasks] == [*again.seeds]


def test_an_attempt_that_is_tried_again_takes_the_same_seed() -> None:
    run, (again, *_) = explored_run(MIXED)
    run.happen(again, control.sample_failed("run-0", 2, 0))
    (repeated,) = [task for task in run.issued() if task.attempt == 1]
    assert (repeated.sample, repeated.seed_session) == (2, again.seeds[2])


def test_an_exploration_with_equal_returns_ends_and_another_task_is_explored() -> None:
    run, admitted = explored_run(EQUAL)
    assert [group.purpose for group in admitted] == ["explore"]
    assert "run-explore-0" not in run.state.first.ledger.groups


def test_an_exploration_is_sampled_again_once() -> None:
    run, _ = explored_run(MIXED, MIXED)
    assert [group.explored for group in run.admit()][:2] == ["run-explore-0", "run-explore-1"]
    assert [group.explored for group in run.decided() if group.explored] == []


def test_explored_groups_wait_for_a_credit_and_count_as_explorations_until_then() -> None:
    run = ExploringRun()
    while admitted := run.admit():
        for group in admitted:
            if group.purpose == "explore":
                run.explore(group.group_id, MIXED)
    ledger = run.state.first.ledger
    assert len(ledger.training) == CREDITS
    assert len(ledger.explorations) == UNDER_WAY
    assert run.decided() == []
    run.happen(control.ready("run-0"), control.dropped("run-0"))
    assert [bool(group.explored) for group in run.decided()] == [True]


def test_nothing_is_explored_once_the_last_steps_have_their_groups() -> None:
    run = ExploringRun()
    last_step = run.settings.run.model_copy(update={"steps": 1})
    run.settings = run.settings.model_copy(update={"run": last_step})
    for group in run.admit()[:2]:
        run.explore(group.group_id, MIXED)
    assert [group.explored for group in run.admit()] == ["run-explore-0", "run-explore-1"]


def test_a_failed_exploration_is_tried_again_as_an_exploration() -> None:
    run = ExploringRun()
    task = run.admit()[0].task_id
    run.happen(control.dropped("run-explore-0", "failed"))
    (again,) = run.decided()
    assert (again.purpose, again.task_id, again.sampler) == ("explore", task, "again")
    assert again.group_size == SAMPLES


def test_a_task_counts_for_its_statistics_with_its_exploration_alone() -> None:
    run, (again, *_) = explored_run(MIXED)
    run.happen(again, control.ready("run-0", returns=(1.0,) * 4, turns=(1,) * 4))
    arm = run.arms.arm(task_arm(again.task_id))
    assert (arm.draws, arm.ready, arm.last_passed, arm.last_counted) == (1, 1, 3, SAMPLES)
    assert run.arms.arm(source_arm("train")).draws == UNDER_WAY
    assert run.state.first.ledger.drawn == UNDER_WAY


def test_a_task_is_not_drawn_while_it_is_explored_or_sampled_again() -> None:
    run = ExploringRun(tasks=UNDER_WAY + 1)
    first = {group.task_id for group in run.admit()}
    run.explore("run-explore-0", MIXED)
    again, another = [*run.admit(), *run.admit()]
    assert again.task_id in first
    assert another.task_id not in first


def test_with_fewer_sessions_than_asked_for_all_are_sampled_again() -> None:
    _, (again, *_) = explored_run((0.0, 1.0, 1.0))
    assert len(again.seeds) == again.group_size == 3


def test_of_equal_returns_the_earlier_sessions_are_the_worse_ones() -> None:
    sessions = [r.SeedSession(session_id=str(place), text="", value=0.5) for place in range(6)]
    chosen = [session.session_id for session in extremes(sessions, best=1, worst=2)]
    assert chosen == ["0", "1", "5"]


def test_each_session_goes_to_workers_of_its_kind() -> None:
    explore = replace(GROUP, purpose="explore")
    again = replace(GROUP, seeds=(r.SeedSession(session_id="s", text="", value=0.0),))
    assert placed({}, explore, SAMPLER) == {"worker_tags": "cheap!"}
    assert placed({"worker_tags": "decode"}, again, SAMPLER) == {"worker_tags": "decode,exact!"}
    evaluation = replace(GROUP, purpose="eval")
    assert placed({}, evaluation, SAMPLER) == {"worker_tags": "exact!"}
    assert placed({"level": "1"}, GROUP, SamplerSection()) == {"level": "1"}
    assert placed({}, evaluation, SamplerSection()) == {}
