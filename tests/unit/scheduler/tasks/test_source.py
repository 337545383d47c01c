"""A draw of tasks reads the one task that is drawn."""

from collections.abc import Sequence
from typing import overload

import pytest

from seamlessflow.scheduler.tasks.source import TaskRow, TaskSource

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
