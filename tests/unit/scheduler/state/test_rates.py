"""Rates that a run has shown on `control`."""

import pytest

from seamlessflow.scheduler.state.rates import NEWEST, GangSpeed, LearnedRates
from seamlessflow.schemas.records import Record
from tests.builders.records import control
from tests.builders.scheduler import inputs


def fold(*records: Record) -> LearnedRates:
    return inputs.fold(*records).first.rates


def test_a_worker_rolls_out_as_fast_as_in_full_batches_and_newer_reports_count_more() -> None:
    learned = fold(
        control.usage("a", decoding_ms=500, full_batch_ms=100, tokens=100),
        control.usage("a", decoding_ms=500, full_batch_ms=100, tokens=200),
        control.usage("b", decoding_ms=500, tokens=100),
    )

    assert learned.sampled == {"a": pytest.approx(1 + NEWEST), "b": pytest.approx(0.2)}


def test_a_step_shows_the_speed_of_a_device_of_its_gang() -> None:
    learned = fold(
        control.joined("a", devices=(0, 1, 2)),
        control.batch_ready(trainable_tokens=400),
        control.started(["a", "b"]),
        control.usage("c", decoding_ms=50, tokens=700),
        control.completed(took_ms=50),
    )

    assert learned.gangs == (GangSpeed(("a", "b"), 2.0),)
    assert (learned.step_tokens, learned.since_step) == (700, 0)
