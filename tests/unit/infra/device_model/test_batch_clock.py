"""The clock of a continuous batch, against passes counted one at a time."""

import pytest

from seamlessflow.infra.device_model.batch_clock import BatchClock
from seamlessflow.infra.device_model.rates import Rates

RATES = Rates(launch_s=0.002, weights_s=0.01, row_s=0.001, context_s=1e-6, rows=32)


def counted_s(rows: int, context: float, passes: int) -> float:
    """Return the time of these passes, one at a time; half a token stands for the growth in one."""
    done_s = 0.0
    for _ in range(passes):
        done_s += RATES.batch_s(rows) + RATES.context_s * (context + rows / 2)
        context += rows
    return done_s


@pytest.mark.parametrize("rows", [1, 5, 32])
def test_passes_take_what_each_of_them_takes(rows: int) -> None:
    clock = BatchClock(RATES)
    for _ in range(rows):
        clock.add(1000.0, 0.0, 0.0)

    expected_s = counted_s(rows, 1000.0 * rows, 700)
    assert clock.seconds_until(700) == pytest.approx(expected_s)
    clock.advance(expected_s)
    assert clock.passes == pytest.approx(700)
    assert clock.tokens == pytest.approx(700 * rows)
    assert clock.context == pytest.approx(1700 * rows)


def test_stops_on_the_way_change_nothing() -> None:
    once, often = BatchClock(RATES), BatchClock(RATES)
    for clock in (once, often):
        clock.add(500.0, 0.3, 0.3)

    once.advance(10.0)
    for tenth in range(1, 101):
        often.advance(tenth / 10)

    assert often.passes == pytest.approx(once.passes)
    assert often.full_batch_s == pytest.approx(once.full_batch_s)


def test_prompts_are_computed_before_the_next_pass() -> None:
    clock = BatchClock(RATES)
    clock.add(0.0, 2.0, 1.5)

    clock.advance(1.0)
    assert (clock.passes, clock.prompt_s) == (0, 1.0)
    assert (clock.full_batch_s, clock.recomputing_s) == (0.75, 0.25)
    assert clock.seconds_until(1) == pytest.approx(1.0 + counted_s(1, 0.0, 1))


def test_a_lone_row_takes_longer_than_its_share_of_a_full_batch() -> None:
    rates = Rates(launch_s=0.002, weights_s=0.01, row_s=0.001, rows=32)
    full, lone = BatchClock(rates), BatchClock(rates)
    for _ in range(32):
        full.add(0.0, 0.0, 0.0)
    lone.add(0.0, 0.0, 0.0)

    full.advance(5.0)
    lone.advance(5.0)

    assert full.full_batch_s == pytest.approx(5.0)
    # A pass takes 34 ms for 32 tokens, and 12 ms for one.
    assert lone.full_batch_s == pytest.approx(5.0 / 12 * 34 / 32)
