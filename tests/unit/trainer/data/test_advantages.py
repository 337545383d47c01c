"""Advantages against their definitions."""

import numpy as np
import pytest

from trainer.data.advantages import ESTIMATORS, grpo, grpo_unscaled, rloo, varied

RETURNS = np.array([1.0, 0.0, 0.0, 0.5])


def test_grpo_is_the_return_in_standard_deviations_from_the_groups_mean() -> None:
    expected = (RETURNS - RETURNS.mean()) / RETURNS.std()
    assert grpo(RETURNS) == pytest.approx(expected)


def test_unscaled_grpo_keeps_the_size_of_the_returns() -> None:
    assert grpo_unscaled(RETURNS) == pytest.approx([0.625, -0.375, -0.375, 0.125])


def test_rloo_compares_with_the_mean_of_the_others() -> None:
    others = [np.delete(RETURNS, place).mean() for place in range(4)]
    assert rloo(RETURNS) == pytest.approx(RETURNS - others)


@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.parametrize("returns", [[0.3], [0.1 + 0.2, 0.3], [1.0, 1.0, 1.0]])
def test_equal_returns_have_no_advantage(name: str, returns: list[float]) -> None:
    assert ESTIMATORS[name](np.array(returns)) == pytest.approx(0, abs=1e-12)
    assert not varied(np.array(returns))
