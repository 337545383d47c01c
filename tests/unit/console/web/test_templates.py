"""Figures as pages write them."""

import pytest

from seamlessflow.console.web.templates import reward, signed


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, ""),
        (0.46875, "0.469"),
        (0.0, "0"),
        (-12.34, "-12.3"),
        (999.4, "999"),
        (999.7, "1,000"),
        (1953.2, "1,953"),
        (-20_000.0, "-20,000"),
        (1e12, "1e+12"),
        (1.07e-13, "1.07e-13"),
        (float("nan"), "nan"),
    ],
)
def test_a_figure_has_three_digits_and_all_before_the_point(value: float | None, text: str) -> None:
    assert reward(value) == text


def test_a_difference_has_its_sign() -> None:
    assert [signed(value) for value in (None, 0.0, 0.5, -1953.2)] == ["", "0", "+0.5", "-1,953"]
