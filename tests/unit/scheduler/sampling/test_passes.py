"""`srpo`: passes over the tasks, which those leave whose newest group passed whole."""

import pytest

from seamlessflow.scheduler.sampling.draws import FELL_BACK, sampling_of
from seamlessflow.scheduler.sampling.settings import SamplerSection, TermsSection
from seamlessflow.scheduler.state.arms import Arm
from tests.builders.scheduler.sampling import SampledRun, planted, source_of

ALL_PASS = (1.0, 1.0)
MIXED = (1.0, 0.0)
ALL_WRONG = (0.0, 0.0)


def run_of(count: int, **settings: object) -> SampledRun:
    """Return a run over so many tasks."""
    source = source_of(count)
    section = SamplerSection.model_validate({"name": "srpo", **settings})
    return SampledRun(source, sampling_of(section, TermsSection(), {}, source, (0, 2, 0)))


def play(run: SampledRun, count: int, each: int = 1) -> list[str]:
    """Draw so many tasks, `each` at a time, of which the groups end mixed; return their ids."""
    names: list[str] = []
    while len(names) < count:
        drawn = run.names(min(each, count - len(names)))
        for task_id in drawn:
            run.finish(task_id, *MIXED)
        names += drawn
    return names


@pytest.mark.parametrize("each", [1, 3, 10])
def test_a_pass_visits_each_task_once_in_an_order_of_its_own(each: int) -> None:
    run = run_of(10)
    first, second = (play(run, 10, each) for _ in range(2))
    assert sorted(first) == sorted(second) == sorted(f"train-{n}" for n in range(10))
    assert first != second


def test_a_question_at_the_end_of_a_pass_goes_on_in_the_next_one() -> None:
    run = run_of(10)
    names = play(run, 20, each=4)  # the third question is for two of each pass
    assert sorted(names[:10]) == sorted(names[10:])
    assert all(FELL_BACK not in arm.figures for arm in run.arms.by_name.values())


def test_mixed_all_wrong_and_undecided_tasks_alone_go_into_the_next_pass() -> None:
    run = run_of(8)
    ends = {"train-0": ALL_PASS, "train-1": MIXED, "train-2": ALL_WRONG, "train-3": ALL_PASS}
    for task_id in run.names(8):
        if task_id in ends:
            run.finish(task_id, *ends[task_id])
        elif task_id != "train-7":
            run.drop(task_id)
    # 7 is under way, so it has no result either: its turn comes when its group has ended.
    assert sorted(run.names(5)) == ["train-1", "train-2", "train-4", "train-5", "train-6"]
    run.drop("train-7")
    assert run.names(1) == ["train-7"]


def test_the_newest_group_decides() -> None:
    run = run_of(2)
    for _ in range(2):
        for task_id in run.names(2):
            run.finish(task_id, *MIXED)
    (first, second) = run.names(2)
    run.finish(first, *ALL_PASS)
    run.finish(second, *ALL_WRONG)
    assert play(run, 3) == [second] * 3


def test_if_all_tasks_have_left_all_come_back_for_a_whole_pass_and_the_figures_say_so() -> None:
    run = run_of(6)
    for task_id in run.names(6):
        run.finish(task_id, *ALL_PASS)
    back: list[str] = []
    for _ in range(6):
        (drawn,) = run.admit(1)
        assert (drawn.rule.figures["pass"], drawn.rule.figures["all_back"]) == (1, 1)
        back.append(drawn.row.task_id)
        run.finish(drawn.row.task_id, *(ALL_PASS if len(back) > 2 else MIXED))
    assert sorted(back) == sorted(f"train-{n}" for n in range(6))
    assert sorted(play(run, 2)) == sorted(back[:2]), "only those that did not pass"
    assert run.arms.arm("source:train").figures["all_back"] == 0


def test_no_task_comes_back_while_one_that_stays_is_under_way() -> None:
    run = run_of(4)
    *passed, stays = run.names(4)
    for task_id in passed:
        run.finish(task_id, *ALL_PASS)
    (drawn,) = run.admit(1)
    assert drawn.rule.figures[FELL_BACK] == 1, "in shuffled order, since there are no others"
    assert drawn.row.task_id != stays
    run.drop(stays)
    assert run.names(1) == [stays]


def test_all_tasks_come_back_though_some_of_them_are_always_under_way() -> None:
    run = run_of(8)
    under_way = run.names(4)
    back = []
    for _ in range(40):
        run.finish(under_way.pop(0), *ALL_PASS)
        (drawn,) = run.admit(1)
        back.append(drawn.rule.figures.get("all_back", 0.0))
        under_way.append(drawn.row.task_id)
    assert sum(back) > 30, "in shuffled order only while tasks without a result are under way"


@pytest.mark.parametrize("away", [1, 2])
def test_a_task_returns_after_so_many_passes(away: int) -> None:
    run = run_of(3, return_after=away)
    for task_id in sorted(run.names(3)):
        run.finish(task_id, *(ALL_PASS if task_id == "train-0" else MIXED))
    for _ in range(away):
        assert sorted(play(run, 2)) == ["train-1", "train-2"]
    assert "train-0" in play(run, 3)


def test_a_task_that_another_sampler_drew_returns_too() -> None:
    run = run_of(2, return_after=1)
    run.arms = planted({"task:train-0": Arm(last_passed=2, last_counted=2)})
    assert [play(run, 1), play(run, 1)] == [["train-1"]] * 2
    assert sorted(play(run, 2)) == ["train-0", "train-1"]


@pytest.mark.parametrize("taken_over", [False, True])
def test_a_task_under_way_at_the_begin_of_a_pass_gets_its_turn_later(taken_over: bool) -> None:
    run = run_of(6)
    names = run.names(6)
    for task_id in names[:5]:
        run.finish(task_id, *MIXED)
    second = run.names(5)
    assert names[5] not in second
    if taken_over:
        run.take_over()
    for task_id in [*second, names[5]]:
        run.finish(task_id, *MIXED)
    assert run.names(1) == [names[5]]
    assert run.arms.arm(f"task:{names[5]}").figures["pass"] == 1, "in the same pass"


@pytest.mark.parametrize("after", [3, 6, 8])
def test_behind_a_takeover_a_pass_goes_on_at_the_same_place(after: int) -> None:
    run, other = run_of(6), run_of(6)
    first = play(run, after) + play(run, 12 - after)
    begun = play(other, after)
    other.take_over()
    assert begun + play(other, 12 - after) == first
