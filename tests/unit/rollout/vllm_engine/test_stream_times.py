"""Time of passes from the streams of a server."""

import pytest

from seamlessflow.producers.rollout.vllm_engine.stream_times import StreamTimes


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
