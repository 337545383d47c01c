"""The rows and the width of a prefill pass."""

import pytest

from seamlessflow.producers.rollout.torch_engine.batching import plan_prefill


@pytest.mark.parametrize(
    ("pending", "budget", "plan"),
    [
        ([5], 100, (1, 5)),
        ([500], 100, (1, 100)),
        ([10, 10, 10], 100, (3, 10)),
        ([10, 10, 40, 10], 100, (2, 10)),
        ([50, 50, 50], 100, (2, 50)),
        ([2, 60], 100, (1, 2)),
        ([60, 2], 100, (1, 60)),
    ],
)
def test_the_padded_area_stays_within_the_budget(
    pending: list[int], budget: int, plan: tuple[int, int]
) -> None:
    assert plan_prefill(pending, budget) == plan
