"""What is measured from `control`."""

import pytest

from tests.builders.scheduler import events as e


def test_a_switch_costs_leaving_one_role_and_taking_the_other() -> None:
    costs = e.fold(
        e.released("w", "rollout", 1, took_ms=30), e.acquired("w", "train", 1, took_ms=12)
    ).costs

    assert costs.switch_mean("train") == 42
    assert costs.switch_mean("rollout") is None


def test_a_worker_that_held_nothing_did_not_switch() -> None:
    assert e.fold(e.acquired("w", took_ms=40_000)).costs.switch_mean("rollout") is None


def test_only_groups_that_were_admitted_tell_how_often_a_group_gets_ready() -> None:
    costs = e.fold(
        e.ready("elsewhere", at_ms=1),
        e.admitted("run-0"),
        e.admitted("run-1"),
        e.ready("run-0", at_ms=100),
        e.ready("elsewhere", at_ms=110),
        e.ready("run-1", at_ms=150),
    ).costs

    assert costs.group.mean == 50


def test_worker_time_of_a_step_is_what_all_workers_decoded_and_the_gang_trained() -> None:
    costs = e.fold(
        e.batch_ready(),
        e.started(["a", "b"]),
        e.usage("a", decoding_ms=100),
        e.usage("c", decoding_ms=300),
        e.completed(took_ms=50),
    ).costs

    assert (costs.rollout.mean, costs.train.mean, costs.step.mean) == (400, 100, 50)


def test_the_speed_of_a_role_is_tokens_over_the_time_at_work() -> None:
    costs = e.fold(e.usage("a", decoding_ms=500, idle_ms=9_000, tokens=100)).costs

    assert costs.speed_mean("rollout", "a") == pytest.approx(200)
    assert costs.speed_mean("train", "a") is None
