"""Costs measured from `control`."""

import pytest

from tests.builders.records import control
from tests.builders.scheduler.inputs import fold


def test_a_switch_costs_leaving_one_role_and_taking_the_other() -> None:
    costs = fold(
        control.released("w", "rollout", 1, took_ms=30),
        control.acquired("w", "train", 1, took_ms=12),
    ).first.costs

    assert costs.switch_mean("train") == 42
    assert costs.switch_mean("rollout") is None


def test_a_worker_that_held_nothing_did_not_switch() -> None:
    assert fold(control.acquired("w", took_ms=40_000)).first.costs.switch_mean("rollout") is None


def test_only_groups_that_were_admitted_tell_how_often_a_group_gets_ready() -> None:
    costs = fold(
        control.ready("elsewhere", at_ms=1),
        control.admitted("run-0"),
        control.admitted("run-1"),
        control.ready("run-0", at_ms=100),
        control.ready("elsewhere", at_ms=110),
        control.ready("run-1", at_ms=150),
    ).first.costs

    assert costs.group.mean == 50


def test_the_time_from_batch_to_batch_is_measured() -> None:
    batches = [control.batch_ready(step, at_ms=at) for step, at in enumerate((50, 100, 250))]

    assert fold(*batches).first.costs.batch.mean == 100


def test_worker_time_of_a_step_is_that_of_full_batches_on_all_workers_and_of_the_gang() -> None:
    costs = fold(
        control.batch_ready(),
        control.started(["a", "b"]),
        control.usage("a", decoding_ms=100),
        control.usage("c", decoding_ms=900, full_batch_ms=300),
        control.completed(took_ms=50),
    ).first.costs

    assert (costs.rollout.mean, costs.train.mean, costs.step.mean) == (400, 100, 50)


def test_the_time_of_a_worker_counts_for_each_of_its_devices() -> None:
    costs = fold(
        control.joined("a", devices=(0, 1, 2, 3)),
        control.batch_ready(),
        control.started(["a", "b"]),
        control.usage("a", decoding_ms=100),
        control.completed(took_ms=50),
    ).first.costs

    assert (costs.rollout.mean, costs.train.mean) == (400, 250)


def test_writing_the_weights_of_a_step_is_no_training() -> None:
    costs = fold(
        control.batch_ready(),
        control.started(["a", "b"]),
        control.completed(took_ms=50, metrics={"publish_s": 0.02}),
    ).first.costs

    assert (costs.train.mean, costs.step.mean) == (60, 50)


def test_the_speed_of_a_role_is_tokens_over_the_time_at_work() -> None:
    costs = fold(control.usage("a", decoding_ms=500, idle_ms=9_000, tokens=100)).first.costs

    assert costs.speed_means("rollout") == {"a": pytest.approx(200)}
    assert costs.speed_means("train") == {}


def test_new_weights_take_device_time_where_they_are_written_loaded_and_computed_for() -> None:
    costs = fold(
        control.joined("a", devices=(0, 1)),
        control.started(["a"]),
        control.resumed(worker="a", paused_ms=10),
        control.usage("b", decoding_ms=50, recomputing_ms=5),
        control.completed(took_ms=50, metrics={"publish_s": 0.02}),
    ).first.costs

    # Loading and writing of two devices each, and what one computed again.
    assert costs.load.mean == 20 + 40 + 5
