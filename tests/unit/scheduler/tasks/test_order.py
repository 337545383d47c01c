"""The order of tasks is a permutation, computed one place at a time."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seamlessflow.scheduler.tasks.order import shuffled_place


@given(st.integers(1, 300), st.integers(), st.integers(0, 5))
def test_every_pass_has_every_place_once(count: int, seed: int, finished: int) -> None:
    places = [shuffled_place(number, count, seed, finished) for number in range(count)]
    assert sorted(places) == list(range(count))


def test_the_order_of_a_seed_never_changes() -> None:
    order = [shuffled_place(number, 10, 7, 1) for number in range(10)]
    assert order == [4, 9, 2, 7, 6, 1, 8, 5, 0, 3]


def test_passes_and_seeds_have_orders_of_their_own() -> None:
    orders = {
        tuple(shuffled_place(number, 20, seed, finished) for number in range(20))
        for seed in (0, 1)
        for finished in (0, 1)
    }
    assert len(orders) == 4


@pytest.mark.parametrize("count", [3, 5, 12])
def test_each_place_is_drawn_first_about_as_often(count: int) -> None:
    first = Counter(shuffled_place(0, count, seed, 0) for seed in range(2_000))
    assert len(first) == count
    assert max(first.values()) < 2 * min(first.values())
