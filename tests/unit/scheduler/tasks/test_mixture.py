"""Mixtures: each source has its share of the draws, evenly, by the number of the draw alone."""

from collections import Counter
from fractions import Fraction
from math import log

import pytest

from seamlessflow.scheduler.tasks.mixture import Drawing, Mixture, mixed, with_forks
from seamlessflow.scheduler.tasks.source import SHUFFLED, TaskRow, TaskSource, listed

Weights = dict[str, Fraction]


def source(name: str, count: int = 1) -> TaskSource:
    return listed([TaskRow(f"{name}{n}", b"{}", {}, split=name) for n in range(count)])


def mixture_of(weights: Weights) -> Drawing:
    return mixed([(source(name), weight) for name, weight in weights.items()])


def drawn(draws: Drawing, count: int) -> str:
    return "".join(draws.draw(number).split for number in range(count))


@pytest.mark.parametrize(
    ("weights", "order"),
    [
        ({"a": 1, "b": 1}, "babababa"),
        ({"a": 2, "b": 1}, "baabaaba"),
        ({"a": 1, "b": 2, "c": 1}, "cbbacbba"),
        ({"a": 5}, "aaaaaaaa"),
    ],
)
def test_draws_are_spread_evenly(weights: dict[str, int], order: str) -> None:
    assert (
        drawn(mixture_of({name: Fraction(weight) for name, weight in weights.items()}), 8) == order
    )


@pytest.mark.parametrize(
    "weights",
    [
        {"a": "2", "b": "1"},
        {"a": "0.1", "b": "0.2", "c": "0.7"},
        {"a": "1e-3", "b": "1"},
        {name: "1" for name in "abcdefgh"},
        {name: str(place**2) for place, name in enumerate("abcdefgh", 1)},
    ],
)
def test_after_any_number_of_draws_each_source_is_near_its_share(weights: dict[str, str]) -> None:
    exact = {name: Fraction(weight) for name, weight in weights.items()}
    total, draws, counts = sum(exact.values()), mixture_of(exact), Counter[str]()
    for number in range(3_000):
        counts[draws.draw(number).split] += 1
        worst = max(
            abs(counts[name] - (number + 1) * weight / total) for name, weight in exact.items()
        )
        assert worst < 2 + log(len(exact))


def test_shares_are_exact_after_a_whole_period() -> None:
    exact = {"a": Fraction(3), "b": Fraction(2), "c": Fraction(5)}
    assert Counter(drawn(mixture_of(exact), 10 * 30)) == {"a": 90, "b": 60, "c": 150}


def test_each_source_goes_through_its_own_tasks_in_its_own_order() -> None:
    rows = [TaskRow(f"a{n}", b"{}", {}) for n in range(5)]
    shuffled = TaskSource(rows, {row.task_id: row for row in rows}.get, seed=3)
    draws = mixed([(shuffled, Fraction(2)), (source("b", 2), Fraction(1))])
    task_ids = [draws.draw(number).task_id for number in range(30)]
    source_ids = [task_id for task_id in task_ids if task_id[0] == "a"]
    assert source_ids == [shuffled.draw(number).task_id for number in range(20)]
    assert sorted(source_ids[:5]) == sorted(source_ids[5:10]) == [f"a{n}" for n in range(5)]
    assert [task_id for task_id in task_ids if task_id[0] == "b"] == ["b0", "b1"] * 5


def test_a_draw_far_away_takes_no_longer_and_is_the_same_again() -> None:
    draws = mixture_of({"a": Fraction(2), "b": Fraction(1)})
    assert drawn(draws, 3) == "".join(draws.draw(3 * 10**30 + n).split for n in range(3))


def test_the_rule_of_a_draw_says_all_that_the_task_follows_from() -> None:
    rows = [TaskRow(f"a{n}", b"{}", {}) for n in range(5)]
    shuffled = TaskSource(rows, {row.task_id: row for row in rows}.get, seed=3)
    draws = mixed([(shuffled, Fraction(3)), (source("b", 2), Fraction(1))])
    rule = draws.rule(7)
    assert (rule.name, rule.version) == SHUFFLED
    assert rule.figures == {"draw": 7, "source_draw": 5, "share": 0.75, "seed": 3, "tasks": 5}
    assert draws.draw(7) == shuffled.draw(5)


def test_forks_have_their_share_and_the_sources_what_is_left_of_it() -> None:
    weighted = [(source("a"), Fraction(1)), (source("b"), Fraction(3))]
    half = with_forks(weighted, source("F"), Fraction(1, 2))
    assert Counter(drawn(half, 80)) == {"F": 40, "a": 10, "b": 30}
    assert drawn(half, 8)[1::2] == "FFFF"
    assert drawn(with_forks(weighted, source("F"), Fraction(0)), 8) == drawn(mixed(weighted), 8)
    alone = with_forks(weighted, source("F"), Fraction(1))
    assert drawn(alone, 8) == "FFFFFFFF"
    assert alone.find("b0") is not None, "a group of before goes on"


def test_a_mixture_of_nothing_is_refused() -> None:
    for weighted in ([], [(source("a"), Fraction(0))]):
        with pytest.raises(ValueError, match="no source has a weight"):
            mixed(weighted)
    with pytest.raises(ValueError, match="no source has a weight"):
        Mixture(()).draw(0)
