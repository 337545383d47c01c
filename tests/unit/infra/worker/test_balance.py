"""The share of the running turns that each worker should have."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.worker.balance import KEEPS, given_up, surplus

LOADS = st.dictionaries(st.text("abcdef", min_size=1, max_size=3), st.integers(0, 300))


@pytest.mark.parametrize(
    ("loads", "found"),
    [
        ({}, {}),
        ({"w0": 9}, {}),
        ({"w0": 17, "w1": 0}, {"w0": 8}),
        ({"w0": 16, "w1": 17, "w2": 0}, {"w0": 5, "w1": 6}),
        ({"w0": 4, "w1": 0}, {}),
        ({"w0": 6, "w1": 0, "w2": 0}, {"w0": 2}),
    ],
)
def test_a_worker_gives_up_what_the_others_lack(
    loads: Mapping[str, int], found: Mapping[str, int]
) -> None:
    assert surplus(loads) == found


@given(LOADS)
def test_what_is_given_up_fits_on_the_others_and_leaves_loads_even(loads: dict[str, int]) -> None:
    over = surplus(loads)
    left = {name: load - over.get(name, 0) for name, load in loads.items()}
    for _ in range(sum(over.values())):
        left[min(left, key=lambda name: left[name])] += 1

    assert all(left[name] >= min(KEEPS, loads[name]) for name in loads)
    assert not over or max(left.values()) <= max(KEEPS, min(left.values()) + 1)
    assert not surplus(left) or max(left.values()) <= KEEPS


def test_each_gives_up_its_first_turns() -> None:
    assert given_up({"w0": ["a", "b", "c", "d", "e", "f"], "w1": []}) == ["a", "b"]
