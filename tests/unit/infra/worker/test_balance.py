"""The share of the running turns that each worker should have."""

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seamlessflow.infra.worker.balance import KEEPS, given_up, surplus

LOADS = st.dictionaries(st.text("abcdef", min_size=1, max_size=3), st.integers(0, 300))


@pytest.mark.parametrize(
    ("loads", "expected"),
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
    loads: Mapping[str, int], expected: Mapping[str, int]
) -> None:
    assert surplus(loads) == expected


@given(LOADS)
def test_what_is_given_up_fits_on_the_others_and_leaves_loads_even(loads: dict[str, int]) -> None:
    over = surplus(loads)
    left = {name: load - over.get(name, 0) for name, load in loads.items()}
    for _ in range(sum(over.values())):
        left[min(left, key=lambda name: left[name])] += 1

    assert all(left[name] >= min(KEEPS, loads[name]) for name in loads)
    assert not over or max(left.values()) <= max(KEEPS, min(left.values()) + 1)
    assert not surplus(left) or max(left.values()) <= KEEPS


Asked = tuple[str, tuple[str, ...]]
"""A turn: its name and its wishes."""


def moved(turns: Mapping[str, Sequence[Asked]], tags: Mapping[str, str] | None = None) -> list[str]:
    """Return the names of the turns that are given up by workers with these tags."""
    worker_tags = {name: frozenset((tags or {}).get(name, "").split()) for name in turns}
    return [name for name, _ in given_up(turns, worker_tags, lambda turn: turn[1])]


def running(name: str, count: int, *wishes: str) -> list[Asked]:
    return [(f"{name}{number}", wishes) for number in range(count)]


def test_each_gives_up_its_first_turns() -> None:
    assert moved({"w0": running("a", 6), "w1": []}) == ["a0", "a1"]


CLASSES = {"a0": "hw:A", "a1": "hw:A", "b0": "hw:B", "b1": "hw:B"}


@pytest.mark.parametrize("wish", ["hw:A!", "hw:A"])
def test_a_worker_that_is_back_gets_turns_that_ask_for_its_tag(wish: str) -> None:
    busy = {"a0": running("a", 16, wish), "a1": [], "b0": [], "b1": []}

    assert moved(busy, CLASSES) == [f"a{number}" for number in range(8)]


def test_turns_do_not_move_to_workers_that_meet_fewer_of_their_wishes() -> None:
    assert moved({"a0": running("a", 16, "hw:A"), "b0": []}, CLASSES) == []
    assert moved({"a0": running("a", 16, "hw:A!"), "b0": []}, CLASSES) == []


def test_turns_that_spilled_over_move_to_their_class_or_to_others_outside() -> None:
    for worker in ("a1", "b1"):
        busy = {"b0": running("a", 16, "hw:A"), worker: []}

        assert len(moved(busy, CLASSES)) == 8


def test_turns_with_few_workers_move_first_and_the_others_make_up_for_them() -> None:
    at_a0 = [*running("free", 8), *running("a", 8, "hw:A!")]

    assert moved({"a0": at_a0, "a1": [], "b0": []}, CLASSES) == [
        *(f"a{number}" for number in range(8)),
        *(f"free{number}" for number in range(4)),
    ]


def test_a_worker_full_of_turns_that_cannot_move_leaves_the_others_their_share() -> None:
    busy = {"b0": running("b", 30, "hw:B!"), "a0": running("free", 16), "a1": []}

    assert moved(busy, CLASSES) == [f"free{number}" for number in range(8)]


@given(LOADS, st.data())
def test_what_is_fixed_stays_and_the_rest_is_as_even_as_that_allows(
    loads: dict[str, int], data: st.DataObject
) -> None:
    fixed = {name: data.draw(st.integers(0, load)) for name, load in loads.items()}
    over = surplus(loads, fixed)
    left = {name: load - over.get(name, 0) for name, load in loads.items()}
    for _ in range(sum(over.values())):
        left[min(left, key=lambda name: left[name])] += 1

    assert all(left[name] >= max(fixed[name], min(KEEPS, loads[name])) for name in loads)
    least = min(left.values(), default=0)
    assert all(left[name] <= max(KEEPS, fixed[name], least + 1) for name in loads)
