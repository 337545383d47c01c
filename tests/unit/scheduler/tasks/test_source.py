"""Sources of tasks: an order that is a permutation, and draws that read one task each."""

from collections import Counter
from collections.abc import Sequence
from typing import overload

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seamlessflow.scheduler.tasks.source import TaskRow, TaskSource, shuffled_place

COUNT = 10**8


class CountedRows(Sequence[TaskRow]):
    """More tasks than any test could go through, with a count of those that were read."""

    read = 0

    def __len__(self) -> int:
        return COUNT

    @overload
    def __getitem__(self, place: int) -> TaskRow: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[TaskRow]: ...
    def __getitem__(self, place: int | slice) -> TaskRow | Sequence[TaskRow]:
        assert isinstance(place, int)
        self.read += 1
        return TaskRow(str(place), b"{}", {})


@pytest.mark.parametrize("shuffled", [True, False])
def test_a_draw_reads_one_task_however_many_there_are(shuffled: bool) -> None:
    rows = CountedRows()
    source = TaskSource(rows, lambda _: None, seed=3, shuffled=shuffled)
    numbers = [0, 1, COUNT - 1, COUNT, 5 * COUNT + 7]
    drawn = [source.draw(number).task_id for number in numbers]
    assert rows.read == len(numbers)
    assert all(0 <= int(task_id) < COUNT for task_id in drawn)
    if not shuffled:
        assert drawn == ["0", "1", str(COUNT - 1), "0", "7"]


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
