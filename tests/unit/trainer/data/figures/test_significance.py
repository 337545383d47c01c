"""Tests of significance, against all signs counted one by one."""

from itertools import product
from math import comb

import numpy as np
import pytest

from seamlessflow.trainer.data.figures.significance import (
    bootstrap,
    bootstraps,
    mcnemar,
    permutation,
)
from tests.seed import seed


def by_all_signs(differences: list[float]) -> float:
    observed = abs(sum(differences))
    sums = [
        abs(sum(sign * value for sign, value in zip(signs, differences, strict=True)))
        for signs in product((-1, 1), repeat=len(differences))
    ]
    return sum(value >= observed - 1e-9 for value in sums) / len(sums)


@pytest.mark.parametrize(
    ("better", "worse", "p"),
    [(0, 0, 1.0), (3, 3, 1.0), (5, 0, 2 / 32), (9, 1, 2 * 11 / 1024), (1, 9, 2 * 11 / 1024)],
)
def test_mcnemar_counts_the_tails_of_a_fair_coin(better: int, worse: int, p: float) -> None:
    assert mcnemar(better, worse) == pytest.approx(p)


def test_mcnemar_is_exact_for_many_tasks() -> None:
    tail = sum(comb(2_000, count) for count in range(951)) / 2**2_000
    assert mcnemar(1_050, 950) == pytest.approx(2 * tail)


def test_a_permutation_counts_all_signs() -> None:
    generator = np.random.default_rng(seed)
    for size in (1, 4, 9):
        differences = (generator.integers(-4, 5, size=size) / 4).tolist()
        assert permutation(differences) == pytest.approx(by_all_signs(differences))
    assert permutation([0.1, 0.2, 0.3]) == pytest.approx(0.25), "equal sums are equal"


def test_of_one_session_a_task_a_permutation_is_mcnemars_test() -> None:
    assert permutation([1.0] * 40 + [-1.0] * 25 + [0.0] * 100) == pytest.approx(mcnemar(40, 25))


def test_many_different_sizes_are_drawn_and_no_p_is_zero() -> None:
    generator = np.random.default_rng(seed)
    sizes = generator.random(40)
    assert permutation([*sizes, *-sizes]) == 1.0
    assert permutation(sizes.tolist()) == pytest.approx(1 / 20_001)
    signs = generator.choice((-1, 1), size=18)
    few = (signs * generator.random(18)).tolist()
    assert permutation(few) == pytest.approx(by_all_signs(few), abs=0.02)


def test_without_an_effect_few_p_are_small() -> None:
    generator = np.random.default_rng(seed)
    small = sum(permutation(generator.normal(size=25).tolist()) < 0.05 for _ in range(300))
    assert small < 30, "15 are expected"


def test_an_interval_covers_the_difference_of_tasks_drawn_again() -> None:
    generator = np.random.default_rng(seed)
    differences = generator.normal(0.5, 1, size=400)
    interval = bootstrap(differences.tolist())
    assert interval is not None
    error = float(differences.std()) / 20
    assert interval == pytest.approx(
        (differences.mean() - 1.96 * error, differences.mean() + 1.96 * error), abs=0.2 * error
    )
    assert bootstrap([0.25] * 8) is None


def test_intervals_of_many_rows_are_those_of_each() -> None:
    generator = np.random.default_rng(seed)
    rows = [generator.normal(mean, 1, size=size).tolist() for mean, size in ((0, 30), (2, 50))]
    first, none, second = bootstraps([rows[0], [0.25] * 8, rows[1]])
    assert none is None
    for interval, row in ((first, rows[0]), (second, rows[1])):
        assert interval == pytest.approx(bootstrap(row), abs=0.06)
