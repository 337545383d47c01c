"""The filter `spread` by hand. Those of equal and untrainable groups: `test_batch.py`."""

import numpy as np
import pytest

from seamlessflow.trainer.data.advantages import ReturnRules
from seamlessflow.trainer.data.episodes import Episode
from seamlessflow.trainer.data.filters import GroupView, spread


def session(*rewards: float) -> Episode:
    turns_N = np.arange(len(rewards), dtype=np.int32)
    return Episode(0.0, np.array(rewards), turns_N, lambda: np.arange(len(rewards)) - 1)


@pytest.mark.parametrize(
    ("over", "leaves"),
    [(0.3, False), (0.49, False), (0.5, True), (0.6, True)],
)
def test_a_group_leaves_whose_first_returns_are_no_further_apart(over: float, leaves: bool) -> None:
    # At a discount of 0.5 the first turns return 1 and 0: a deviation of 0.5.
    group = GroupView([session(0.5, 1.0), session(0.0, 0.0)], ())
    assert spread(group, ReturnRules(discount=0.5, spread_over=over)) is leaves


def test_a_group_without_a_trained_token_leaves() -> None:
    assert spread(GroupView([session(), session()], ()), ReturnRules())
