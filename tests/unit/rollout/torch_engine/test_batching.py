"""The rows and the width of a prefill pass."""

import numpy as np
import pytest

from seamlessflow.producers.rollout.torch_engine.batching import plan_prefill

OTHER = 50
"""Tokens of two rows from here on differ."""


def plan(rows: list[list[int]], budget: int, cached: list[int] | None = None) -> object:
    """Plan a pass over rows with these tokens."""
    lengths = np.array([len(row) for row in rows])
    tokens_RL = np.zeros((len(rows), lengths.max()), np.int32)
    for row, tokens in enumerate(rows):
        tokens_RL[row, : len(tokens)] = tokens
    return plan_prefill(tokens_RL, lengths, np.array(cached or [0] * len(rows)), budget)


def different(lengths: list[int]) -> list[list[int]]:
    """Return rows of such lengths that have no token in common."""
    return [[row + 1] * length for row, length in enumerate(lengths)]


def begin_alike(lengths: list[int], shared: int) -> list[list[int]]:
    """Return rows of such lengths whose first `shared` tokens are equal."""
    rows = different(lengths)
    return [[99] * shared + row[shared:] for row in rows]


@pytest.mark.parametrize(
    ("lengths", "budget", "expected"),
    [
        ([5], 100, ([0], 5)),
        ([500], 100, ([0], 100)),
        ([10, 10, 10], 100, ([0, 1, 2], 10)),
        ([10, 10, 40, 10], 100, ([0, 1], 10)),
        ([50, 50, 50], 100, ([0, 1], 50)),
        ([2, 60], 100, ([0], 2)),
        ([60, 2], 100, ([0], 60)),
    ],
)
def test_the_padded_area_stays_within_the_budget(
    lengths: list[int], budget: int, expected: tuple[list[int], int]
) -> None:
    assert plan(different(lengths), budget) == expected


def test_equal_rows_are_computed_once() -> None:
    groups = [[group] * 20 for group in (1, 2, 3) for _ in range(4)]
    assert plan(groups, 1000) == ([0, 4, 8], 20)


def test_a_row_waits_for_half_of_what_it_lacks_and_not_for_less() -> None:
    assert plan(begin_alike([20, 20], 10), 1000) == ([0], 20)
    assert plan(begin_alike([20, 20], 9), 1000) == ([0, 1], 20)


def test_what_a_row_has_is_no_reason_to_wait() -> None:
    rows = begin_alike([20, 30], 15)
    assert plan(rows, 1000, cached=[15, 15]) == ([0, 1], 15)
    assert plan(rows, 1000, cached=[0, 4]) == ([0, 1], 26)
    assert plan(rows, 1000, cached=[0, 0]) == ([0], 20)


def test_a_row_that_goes_on_behind_another_waits_for_it() -> None:
    assert plan([[1] * 20, [1] * 30], 1000) == ([0], 20)


def test_rows_that_wait_for_another_leave_the_budget_to_different_ones() -> None:
    rows = [[1] * 20, [1] * 20, [2] * 20, [2] * 20]
    assert plan(rows, 40) == ([0, 2], 20)
