"""Live forks: groups that go on from ended sessions, within their share and exactly once."""

import random
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from functools import partial

import pytest

from seamlessflow.scheduler.decisions import pacing
from seamlessflow.scheduler.sampling.forks import fork_choices
from seamlessflow.scheduler.sampling.registry import UsedMethod
from seamlessflow.scheduler.state.ledger import task_arm
from seamlessflow.scheduler.tasks.mixture import TaskSets
from seamlessflow.schemas import records as r
from tests.builders.records import control
from tests.builders.scheduler.offers import SHARE, SIZE, ForkingRun, offering
from tests.seed import seed


def begun(share: float = SHARE) -> ForkingRun:
    """Return a run whose first groups have just been trained."""
    run = ForkingRun(share)
    for number, group in enumerate(run.admit()):
        run.happen(
            offering(group.group_id, 1.0, *[float(number % 2)] * (SIZE - 1)),
            control.consumed(group.group_id),
        )
    return run


def forks_of(groups: list[r.GroupAdmitted]) -> list[r.GroupAdmitted]:
    return [group for group in groups if group.fork_at is not None]


def test_the_first_groups_have_nothing_to_go_on_from() -> None:
    assert forks_of(ForkingRun().due()) == []


def test_a_group_goes_on_from_an_ended_session() -> None:
    run = begun()
    group, *_ = forks_of(run.due())
    place = group.fork_at
    assert place is not None
    assert (group.sampler, group.parent_session) == ("forks_live", place.session_id)
    assert (group.parent_turn, group.min_group_size) == (str(place.turn), 1)
    assert 2 <= place.turn <= 3
    assert group.sampler_figures["parent_return"] == place.parent_return
    assert group.sampler_figures["samples"] == group.group_size <= SIZE


def test_without_the_setting_no_group_goes_on() -> None:
    run = begun(share=0.0)
    assert forks_of(run.due()) == []


@pytest.mark.parametrize("case", range(20))
def test_forks_never_exceed_their_share_and_no_place_comes_twice(case: int) -> None:
    """Schedulers take over at any moment, also between an offer and its admission."""
    drawn = random.Random(f"{seed} {case}")
    # Where most sessions pass, drawn groups are smaller than those that go on.
    rate = drawn.choice([0.5, 0.95])
    terms = {"name": "by_success", "least": 1, "exempt": 0.0}
    run = ForkingRun(drawn.choice([0.1, 0.25, 0.6]), terms=terms)
    share = Fraction(str(run.settings.pacing.forks_live))
    open_groups: list[r.GroupAdmitted] = []
    for step in range(60):
        before = run.due()
        if drawn.random() < 0.4:
            run.take_over()
            assert run.due() == before, (seed, case, step)
        open_groups += run.admit()
        counted = [record for record in run.log if isinstance(record, r.GroupAdmitted)]
        samples = sum(group.group_size for group in counted)
        forked = sum(group.group_size for group in forks_of(counted))
        assert forked <= share * samples, (seed, case, step)
        drawn.shuffle(open_groups)
        for _ in range(drawn.randint(1, 6)):
            if open_groups:
                run.finish(open_groups.pop(), drawn, rate)
        run.happen(control.published(step + 1, step=step + 1))
    taken = Counter((place.session_id, place.turn) for place in run.forks().values())
    assert taken and max(taken.values()) == 1, (seed, case)
    if share >= Fraction(1, 4):
        assert forked >= share * samples / 2, (seed, case, forked, samples)


def test_a_scheduler_that_takes_over_behind_the_admission_does_not_admit_it_again() -> None:
    run = begun()
    first = forks_of(run.admit())
    run.take_over()
    run.happen(control.claimed(2, "b"))
    for group in run.log:
        if isinstance(group, r.GroupAdmitted):
            run.happen(control.dropped(group.group_id, "filtered"))
    run.happen(control.published(1, step=1))
    later = forks_of(run.due())
    places = {(each.parent_session, each.parent_turn) for each in first}
    assert first and later
    assert not places & {(each.parent_session, each.parent_turn) for each in later}


def test_its_task_has_the_place_and_is_the_same_when_it_is_issued_again() -> None:
    run = begun()
    group, *_ = forks_of(run.admit())
    for _ in range(2):
        due = pacing.tasks(run.state.first.ledger, {}, run.settings, TaskSets(run.source), 0)
        mine = [task for task in due if task.group_id == group.group_id]
        assert [task.fork_at for task in mine] == [group.fork_at] * group.group_size
        assert {task.task_id for task in mine} == {group.task_id}
        run.take_over()


def test_its_result_counts_for_no_arm_and_does_not_advance_the_draw() -> None:
    run = begun()
    ledger = run.state.first.ledger
    arm = {name: run.arms.arm(name) for name in run.arms.by_name}
    group, *_ = forks_of(run.due())
    run.happen(group, offering(group.group_id, *[1.0] * group.group_size))
    after = run.state.first.ledger
    assert (after.drawn, after.admitted) == (ledger.drawn, ledger.admitted + 1)
    assert run.arms.arm(task_arm(group.task_id)) == arm[task_arm(group.task_id)]
    assert {name: run.arms.arm(name) for name in run.arms.by_name} == arm


def test_a_fork_that_cannot_begin_is_dropped_and_its_task_is_not_tried_again() -> None:
    run = begun()
    group, *_ = forks_of(run.due())
    run.happen(group, control.dropped(group.group_id, "failed", detail="no events"))
    assert run.state.first.ledger.again == ()
    assert group.group_id not in run.state.first.ledger.groups


def test_a_task_that_the_run_has_no_more_offers_nothing() -> None:
    run = begun()
    run.source = replace(run.source, find=lambda _: None)
    assert forks_of(run.due()) == []


def test_a_prediction_that_fails_costs_one_choice_and_the_groups_are_drawn() -> None:
    def fail(_: object) -> float:
        raise KeyError("level")

    run = begun()
    whole = run.due()
    call = partial(fork_choices, predict=fail)
    forks = UsedMethod("pacing.forks_live", "mine:fail", call, sha256="0" * 64)
    run.sampling = replace(run.sampling, forks=forks)
    drawn = run.due()
    assert (len(drawn), forks_of(drawn)) == (len(whole), [])
    assert forks.failures == 1


def test_a_choice_names_the_file_of_its_prediction() -> None:
    run = begun()
    call = partial(fork_choices, predict=lambda seen: seen.turn / 9)
    forks = UsedMethod("pacing.forks_live", "mine:rate", call, sha256="0" * 64)
    run.sampling = replace(run.sampling, forks=forks)
    group, *_ = forks_of(run.due())
    assert group.sampler_sha256 == "0" * 64
    assert group.sampler_figures["rate"] == pytest.approx(group.sampler_figures["turn"] / 9)
