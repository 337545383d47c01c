"""Sums along the branches of random trees, against the definition."""

import numpy as np
import pytest

from seamlessflow.trainer.data.chains import NOWHERE
from seamlessflow.trainer.data.credit.branches import accumulated, following


def tree(seed: int) -> tuple[list[int], list[float]]:
    """Return a forest of long runs with forks: what precedes each element, and a value for each."""
    random = np.random.default_rng(seed)
    previous = [
        n - 1 if n and random.random() < 0.8 else int(random.integers(NOWHERE, max(n, 0)))
        for n in range(40)
    ]
    return previous, random.normal(size=40).tolist()


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("factor", [0.0, 0.9, 1.0])
def test_each_element_has_its_value_and_the_mean_of_what_follows(seed: int, factor: float) -> None:
    previous, values = tree(seed)

    def by_definition(n: int) -> float:
        later = [by_definition(m) for m in range(len(previous)) if previous[m] == n]
        return values[n] + factor * (sum(later) / len(later) if later else 0.0)

    found = accumulated(np.array(previous), np.array(values), factor)
    assert found == pytest.approx([by_definition(n) for n in range(len(previous))])


@pytest.mark.parametrize("seed", range(5))
def test_what_follows_an_element_is_a_mean_over_its_branches(seed: int) -> None:
    previous, values = tree(seed)
    expected = []
    for n in range(len(previous)):
        later = [values[m] for m in range(len(previous)) if previous[m] == n]
        expected.append(sum(later) / len(later) if later else 0.0)
    assert following(np.array(previous), np.array(values)) == pytest.approx(expected)


def test_nothing_has_no_sums() -> None:
    none = np.zeros(0, np.int64)
    assert len(accumulated(none, np.zeros(0), 1.0)) == 0
