"""Shapley values of modules: exact, whole, and refused where a combination is missing."""

import math
from collections.abc import Mapping
from itertools import combinations, permutations

import numpy as np
import pytest

from seamlessflow.reports.shapley import (
    Combination,
    CombinationsMissing,
    ScoresUnusable,
    read_scores,
    shapley_values,
)

GAINS = {"planning": 0.25, "reasoning": 0.125, "action": 0.5, "reflection": -0.0625}


def every(modules: list[str]) -> list[Combination]:
    sizes = range(len(modules) + 1)
    return [frozenset(chosen) for size in sizes for chosen in combinations(modules, size)]


def over_all_orders(scores: Mapping[Combination, float], modules: list[str]) -> dict[str, float]:
    """Return the mean gain of each module over all orders in which modules are changed."""
    gains = dict.fromkeys(modules, 0.0)
    for order in permutations(modules):
        for place, module in enumerate(order):
            before = frozenset(order[:place])
            gains[module] += scores[before | {module}] - scores[before]
    return {module: gain / math.factorial(len(modules)) for module, gain in gains.items()}


def test_of_16_runs_of_an_additive_score_each_module_is_worth_its_gain() -> None:
    scores = {each: [0.1 + sum(GAINS[name] for name in each)] for each in every(list(GAINS))}
    values = shapley_values(scores)
    assert {each.module: each.value for each in values.modules} == pytest.approx(GAINS, abs=1e-12)
    assert (values.empty, values.full) == pytest.approx((0.1, 0.1 + sum(GAINS.values())))
    assert all(each.error is None for each in values.modules)


@pytest.mark.parametrize("count", range(1, 6))
@pytest.mark.parametrize("seed", range(3))
def test_values_are_the_mean_gains_over_all_orders_and_sum_to_full_minus_empty(
    count: int, seed: int
) -> None:
    random = np.random.default_rng(seed)
    modules = [f"m{number}" for number in range(count)]
    scores = {each: random.normal(0, 1, 3).tolist() for each in every(modules)}
    values = shapley_values(scores)
    means = {each: float(np.mean(of_each)) for each, of_each in scores.items()}
    by_module = {each.module: each.value for each in values.modules}
    assert by_module == pytest.approx(over_all_orders(means, modules))
    assert sum(by_module.values()) == pytest.approx(values.full - values.empty)


def test_the_error_of_a_value_follows_from_those_of_the_scores() -> None:
    scores = {frozenset[str](): [0.0, 1.0], frozenset({"plan"}): [1.0, 3.0, 5.0]}
    (plan,) = shapley_values(scores).modules
    assert (plan.value, plan.error) == pytest.approx((2.5, math.sqrt(0.5 / 2 + 4 / 3)))


@pytest.mark.parametrize("seed", range(2))
def test_the_error_is_the_deviation_of_values_that_are_measured_again(seed: int) -> None:
    random = np.random.default_rng(seed)
    modules = ["a", "b", "c"]

    def measured() -> tuple[float, float]:
        scores = {each: random.normal(len(each), 1, 6).tolist() for each in every(modules)}
        first = shapley_values(scores).modules[0]
        return first.value, first.error or 0.0

    values, errors = zip(*(measured() for _ in range(400)), strict=True)
    assert np.mean(errors) == pytest.approx(np.std(values), rel=0.15)


def test_combinations_without_a_score_are_named() -> None:
    scores = {frozenset({"plan", "act"}): [1.0], frozenset[str](): [0.0], frozenset({"act"}): []}
    with pytest.raises(CombinationsMissing, match=r"2 combinations have no score: act, plan$"):
        shapley_values(scores)


@pytest.mark.parametrize("modules", [0, 17])
def test_too_few_or_too_many_modules_are_refused(modules: int) -> None:
    with pytest.raises(ScoresUnusable, match=f"of {modules} modules"):
        shapley_values({frozenset(f"m{number}" for number in range(modules)): [1.0]})


ROWS = {
    "scores.csv": "modules,score\nnone,0.5\nplan+act,1\nact + plan,0\n",
    "scores.jsonl": '{"modules": [], "score": 0.5}\n\n{"modules": ["plan", "act"], "score": 1}\n'
    '{"modules": "plan act", "score": 0}\n',
    "sessions-000.jsonl": '{"metadata": "{\\"modules\\": \\"none\\"}", "reward": 0.5}\n'
    '{"metadata": "{\\"modules\\": \\"plan+act\\"}", "reward": 1}\n'
    '{"metadata": "{\\"modules\\": \\"plan+act\\"}", "reward": 0}\n',
}


@pytest.mark.parametrize("name", ROWS)
def test_scores_are_read_from_tables_lines_and_exported_sessions(name: str) -> None:
    scores, unscored = read_scores(name, ROWS[name])
    assert scores == {frozenset(): [0.5], frozenset({"act", "plan"}): [1.0, 0.0]}
    assert unscored == 0


def test_a_session_without_a_reward_is_counted() -> None:
    assert read_scores("x.jsonl", '{"modules": "plan", "reward": null}') == ({}, 1)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("{", "x.jsonl:2: no JSON"),
        ("3", "x.jsonl:2: a line is a JSON object"),
        ('{"modules": "plan"}', "x.jsonl:2: score is None, not a number"),
        ('{"modules": "plan", "score": NaN}', "x.jsonl:2: score is nan"),
        ('{"score": 1}', "x.jsonl:2: it names no modules"),
        ('{"modules": [1], "score": 1}', "x.jsonl:2: it names no modules"),
        ('{"metadata": "{}", "reward": 1}', "x.jsonl:2: it names no modules"),
    ],
)
def test_a_row_that_is_no_score_is_refused_with_its_line(row: str, message: str) -> None:
    with pytest.raises(ScoresUnusable, match=message):
        read_scores("x.jsonl", f'{{"modules": "none", "score": 1}}\n{row}\n')
