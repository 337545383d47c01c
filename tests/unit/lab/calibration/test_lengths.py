"""Lengths of turns as they are measured."""

from random import Random

import pytest

from seamlessflow.infra.device_model.lengths import LengthsSection, drawn_tokens
from seamlessflow.lab.calibration.lengths import measured_lengths

GROUPS, SIZE = 300, 8


def drawn(of: LengthsSection) -> list[tuple[str, int]]:
    """Return turns that the simulator would draw."""
    draws = Random(0)
    found = []
    for number in range(GROUPS):
        shared = draws.gauss()
        found += [(f"g-{number}", drawn_tokens(of, shared, draws.gauss())) for _ in range(SIZE)]
    return found


@pytest.mark.parametrize("most", [100_000, 700])
def test_what_was_drawn_is_measured(most: int) -> None:
    section = LengthsSection(turn_tokens=400, spread=0.6, most_tokens=most, prompt_effect=0.4)

    turns = drawn(section)
    found = LengthsSection(**measured_lengths(turns))

    again = drawn(found)
    assert found.turn_tokens == pytest.approx(400, rel=0.1)
    assert sum(tokens for _, tokens in again) == pytest.approx(
        sum(tokens for _, tokens in turns), rel=0.02
    )
    if most == 700:
        assert found.most_tokens == 700
    else:
        assert found.spread == pytest.approx(0.6, rel=0.05)
        assert found.prompt_effect == pytest.approx(0.4, abs=0.07)


def test_turns_of_one_length_have_no_spread() -> None:
    found = measured_lengths([("a", 7), ("a", 7), ("b", 7)])

    expected = {"turn_tokens": 7, "spread": 0, "most_tokens": 7, "prompt_effect": 0}
    assert found == pytest.approx(expected)
    assert measured_lengths([]) == {}
