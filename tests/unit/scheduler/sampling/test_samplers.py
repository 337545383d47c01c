"""Samplers: the tasks that win for planted statistics."""

from collections import Counter
from dataclasses import replace

import pytest

from seamlessflow.scheduler.sampling.ask import Ask, TaskChoice
from seamlessflow.scheduler.sampling.registry import SAMPLERS
from seamlessflow.scheduler.sampling.samplers import greso, target, vade
from seamlessflow.scheduler.state.arms import Arm
from tests.builders.scheduler.sampling import ask_of, keys_of, passes

SURE = 4_000
"""Sessions behind which a drawn rate is near the true one."""
MIXED = Arm(last_passed=4, last_counted=8)


def sure(rate: float) -> Arm:
    passed = round(rate * SURE)
    return passes(passed, SURE - passed)


def places(choices: list[TaskChoice]) -> list[int]:
    return [choice.place for choice in choices]


def shares(ask: Ask, draws: int = 1_000) -> dict[int, float]:
    """Return how often `greso` chooses each task."""
    counts = Counter(choice.place for _ in range(draws) for choice in greso(replace(ask)))
    return {place: count / draws for place, count in counts.items()}


def moved(**changes: float) -> dict[str, float]:
    """Return figures of `greso` at a choice behind a planted one."""
    pool = Arm(**{"ready": 132, "won": 20, "lost": 30, **changes})  # type: ignore[arg-type]
    before = {"easy": 0.5, "hard": 0.5, "ready": 100.0, "won": 10.0, "lost": 10.0}
    (choice,) = greso(ask_of([Arm()], pool=replace(pool, figures=before)))
    return {name: choice.figures[name] for name in before}


def test_vade_prefers_tasks_that_pass_a_third_of_the_time() -> None:
    rates = [0.02, 0.1, 0.33, 0.6, 0.9, 0.98]
    ask = ask_of([sure(rate) for rate in rates], count=3)
    # p (1 - p)²: 0.019, 0.081, 0.148, 0.096, 0.009, 0.000; by p (1 - p) 0.1 would tie with 0.9.
    assert places(vade(ask)) == [2, 3, 1]


def test_target_prefers_tasks_near_its_rate() -> None:
    tasks = [sure(rate) for rate in (0.02, 0.2, 0.45, 0.7, 0.98)]
    assert places(target(ask_of(tasks, count=2))) == [2, 3]
    assert places(target(ask_of(tasks, count=2), rate=0.1)) == [0, 1]


def test_a_task_that_was_never_drawn_has_the_rate_of_its_pool_with_the_weight_of_four() -> None:
    ask = ask_of([Arm(), passes(2, 6)], pool=Arm(passed=58, failed=40))
    untried, tried = ask.candidates
    assert untried.pool_rate == pytest.approx(0.59)  # (58 + 1) / (58 + 40 + 2)
    assert untried.posterior == pytest.approx((2.36, 1.64))
    assert tried.posterior == pytest.approx((4.36, 7.64))
    assert tried.rate == pytest.approx(4.36 / 12)


def test_thompson_sampling_draws_an_uncertain_task_at_times_and_a_sure_one_never() -> None:
    tasks = [sure(0.5), passes(0, 4), sure(0.9)]
    drawn = Counter(
        place for seed in range(400) for place in places(target(ask_of(tasks, seed_of_draw=seed)))
    )
    assert drawn[0] > drawn[1] > 0 == drawn[2]


def test_choices_record_the_figures_that_they_follow_from() -> None:
    for sampler in (vade, target):
        (choice,) = sampler(ask_of([passes(3, 1)]))
        assert choice.figures["rate"] == pytest.approx(5 / 8)  # pool rate 1/2 with the weight of 4
        assert 0 < choice.figures["drawn_rate"] < 1


@pytest.mark.parametrize("name", sorted(SAMPLERS))
def test_no_sampler_chooses_a_task_twice_or_one_that_is_under_way(name: str) -> None:
    tasks = [passes(passed, 8 - passed) for passed in range(9)] * 2
    busy = {f"train-{place}" for place in (0, 3, 4, 12)}
    for seed in range(20):
        ask = ask_of(tasks, count=18, under_way=keys_of(busy), seed_of_draw=seed)
        chosen = places(list(SAMPLERS[name](ask)))
        assert len(set(chosen)) == len(chosen) and not {0, 3, 4, 12} & set(chosen), seed


@pytest.mark.parametrize("name", sorted(SAMPLERS))
def test_the_same_question_gives_the_same_choices(name: str) -> None:
    tasks = [passes(passed, 8 - passed) for passed in range(9)]
    first, again = (SAMPLERS[name](ask_of(tasks, count=4, seed_of_draw=7)) for _ in range(2))
    assert first == again


def test_of_many_tasks_so_many_are_candidates() -> None:
    ask = ask_of([Arm()] * 50, most_candidates=10)
    assert len({candidate.place for candidate in ask.candidates}) == 10
    assert len(ask_of([Arm()] * 10, most_candidates=10).candidates) == 10


def test_greso_draws_a_task_behind_z_equal_groups_with_the_probability_p_to_the_z() -> None:
    figures = {"easy": 0.5, "hard": 0.8}
    easy = passes(8, 0, equal=2)
    hard = passes(0, 8, equal=3)
    ask = ask_of([easy, hard], pool=Arm(figures=figures))
    # A kept task that comes first wins; where neither is kept, that which came first does.
    keeps_easy, keeps_hard = 0.5**2, 0.8**3
    first = {0: keeps_easy + (1 - keeps_easy) * (1 - keeps_hard)}
    first[1] = keeps_hard + (1 - keeps_hard) * (1 - keeps_easy)
    wanted = 0.5 * first[0] + 0.5 * (1 - first[1])
    assert shares(ask, 4_000)[0] == pytest.approx(wanted, abs=0.03)


def test_greso_draws_tasks_without_equal_groups_like_any_other() -> None:
    ask = ask_of([MIXED, passes(8, 0, equal=40)], pool=Arm(figures={"easy": 0.1, "hard": 0.4}))
    assert shares(ask, 200) == {0: 1.0}


def test_greso_takes_left_out_tasks_where_too_few_are_kept() -> None:
    tasks = [passes(8, 0, equal=40), MIXED, passes(0, 8, equal=40)]
    chosen = places(greso(ask_of(tasks, count=3, pool=Arm(figures={"easy": 0.1, "hard": 0.4}))))
    assert chosen[0] == 1 and sorted(chosen) == [0, 1, 2]


@pytest.mark.parametrize(
    ("changes", "easy", "hard"),
    [
        ({}, 0.49, 0.49),  # 10 of 32 won and 20 lost: too many of both
        ({"won": 12, "lost": 15}, 0.51, 0.51),  # 2 of 32 are 6 %, 5 are 16 %
        ({"won": 13, "lost": 16}, 0.49, 0.49),  # 3 are 9 %, 6 are 19 %
        ({"ready": 131}, 0.5, 0.5),
    ],
)
def test_greso_moves_by_a_hundredth_behind_32_results(
    changes: dict[str, float], easy: float, hard: float
) -> None:
    figures = moved(**changes)
    assert (figures["easy"], figures["hard"]) == (easy, hard)
    if "ready" in changes:
        assert (figures["ready"], figures["won"], figures["lost"]) == (100, 10, 10)
    else:
        counted = {"ready": 132, "won": 20, "lost": 30, **changes}
        assert {name: figures[name] for name in counted} == counted


def test_greso_keeps_its_floors_and_never_exceeds_1() -> None:
    at_floors = {"easy": 0.1, "hard": 0.4, "ready": 0.0, "won": 0.0, "lost": 0.0}
    (choice,) = greso(ask_of([Arm()], pool=Arm(ready=32, won=16, lost=16, figures=at_floors)))
    assert (choice.figures["easy"], choice.figures["hard"]) == (0.1, 0.4)
    (choice,) = greso(ask_of([Arm()], pool=Arm(ready=32)))
    assert (choice.figures["easy"], choice.figures["hard"]) == (1.0, 1.0)
