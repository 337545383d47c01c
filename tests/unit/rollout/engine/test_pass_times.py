"""The cost of a row in a full pass, the seconds of passes by their use, and those of a server."""

import pytest

from seamlessflow.producers.rollout.engine.pass_times import DecodeCosts, PassTimes, StreamTimes

FULL = 32


def costs(*passes: tuple[int, float]) -> DecodeCosts:
    decode_costs = DecodeCosts(FULL)
    for rows, seconds in passes:
        decode_costs.add(rows, seconds)
    return decode_costs


def test_a_row_in_a_full_pass_costs_what_the_line_through_the_passes_says() -> None:
    seen = [(rows, 0.010 + 0.001 * rows) for rows in (1, 2, 9, 4)]

    assert costs(*seen).row_in_full_pass() == pytest.approx(0.042 / FULL)


def test_passes_of_one_size_say_no_more_than_that_a_full_one_takes_as_long() -> None:
    assert costs((1, 0.016), (1, 0.016)).row_in_full_pass() == pytest.approx(0.0005)


@pytest.mark.parametrize(
    ("few_s", "many_s", "row_s"), [(0.02, 0.01, 0.015 / FULL), (0.01, 0.2, 0.105 / 8.5)]
)
def test_neither_a_row_nor_a_pass_costs_less_than_nothing(
    few_s: float, many_s: float, row_s: float
) -> None:
    assert costs((1, few_s), (16, many_s)).row_in_full_pass() == pytest.approx(row_s, rel=1e-2)


def test_what_passes_cost_long_ago_is_forgotten() -> None:
    decode_costs = costs(*[(FULL, 1.0)] * 50, *[(FULL, 0.1)] * 20_000)

    assert decode_costs.row_in_full_pass() == pytest.approx(0.1 / FULL, rel=1e-3)


def test_full_passes_are_useful_and_single_rows_are_not() -> None:
    times = PassTimes(FULL)
    for _ in range(100):
        times.add_decode(FULL, 0.1)
    assert times.full_batch_s == pytest.approx(10)
    for _ in range(100):
        times.add_decode(1, 0.1)
    assert times.full_batch_s == pytest.approx(10 + 10 / FULL, rel=1e-2)


def test_a_prefill_is_useful_as_far_as_its_tokens_are_new() -> None:
    times = PassTimes(FULL)
    times.add_prefill(4.0, again=0.25)

    assert (times.full_batch_s, times.recomputing_s) == (3, 1)


def test_full_streams_are_useful_and_one_stream_is_not() -> None:
    times = StreamTimes(8)
    times.begin(0.0)
    for second in range(1, 11):
        times.sampled(80, 8, float(second))
    assert times.passes.full_batch_s == pytest.approx(10)
    times.begin(100.0)
    times.sampled(10, 1, 101.0)
    assert times.passes.full_batch_s == pytest.approx(10 + 1 / 8, rel=1e-2)


def test_tokens_are_put_together_and_a_burst_is_no_pass_of_its_own() -> None:
    times = StreamTimes(2)
    times.begin(0.0)
    times.sampled(1, 1, 0.1)
    assert times.passes.full_batch_s == 0
    times.sampled(1, 1, 0.4)
    assert times.passes.full_batch_s == pytest.approx(0.4 / 2)


def test_the_wait_for_first_tokens_is_no_decoding() -> None:
    times = StreamTimes(2)
    times.begin(0.0)
    assert times.prefilled(0.6, 2) == pytest.approx(0.3)
    times.sampled(2, 2, 1.0)
    assert times.passes.full_batch_s == pytest.approx(0.7)
