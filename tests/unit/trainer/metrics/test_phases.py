"""Phases of a step: their seconds, and tokens a second."""

from itertools import count

import pytest

from seamlessflow.trainer.metrics.names import METRICS
from seamlessflow.trainer.metrics.phases import PHASES, Phases, mean_phases, token_rates


def test_the_seconds_of_a_phase_add_up() -> None:
    ticks = count()
    phases = Phases(lambda: float(next(ticks)))
    with phases.phase("commit_s"):
        pass
    with phases.phase("update_s"), phases.phase("commit_s"):
        pass
    assert phases.seconds == {"commit_s": 2.0, "update_s": 3.0}


def test_each_phase_is_a_metric_by_its_name() -> None:
    assert {*PHASES, "checkpoint_s", "tokens_per_s", "update_tokens_per_s"} <= METRICS.keys()


def test_tokens_a_second_are_of_the_updates_and_of_all_phases() -> None:
    step = {"tokens_trained": 600.0, "batch_s": 2.0, "update_s": 1.5, "publish_s": 0.5}
    assert token_rates(step, epochs=2) == {"update_tokens_per_s": 800.0, "tokens_per_s": 150.0}


def test_no_rate_is_told_of_what_took_no_time() -> None:
    assert token_rates({"tokens_trained": 600.0, "update_s": 0.0}, epochs=1) == {}


def test_means_are_over_the_steps_that_measured_all_phases() -> None:
    measured = [dict.fromkeys(PHASES, seconds) | {"tokens_trained": 7.0} for seconds in (1.0, 3.0)]
    means = mean_phases([*measured, {"publish_s": 9.0}])
    assert means == pytest.approx(dict.fromkeys(PHASES, 2.0) | {"tokens_per_s": 0.5})
    assert mean_phases([{"publish_s": 9.0}]) == {}
