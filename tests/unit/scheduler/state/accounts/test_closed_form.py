"""Step times, idle shares and splits by the closed form."""

from math import inf

import pytest

from seamlessflow.scheduler.state.accounts.closed_form import (
    Split,
    StepWork,
    best_gang,
    devices_that_train,
    predicted,
    step_limits,
)

EVEN = StepWork(rollout=200, train=200)


@pytest.mark.parametrize(("gang", "bubble"), [(1, True), (2, False), (3, False)])
def test_multiplexed_has_no_bubble_exactly_when_enough_workers_train(
    gang: int, bubble: bool
) -> None:
    # T / (R + T) = 2 / 4
    assert (predicted("multiplexed", 4, gang, EVEN, lag=1).idle > 0) is bubble
    assert devices_that_train(4, 200, 200) == 2


def test_a_lag_of_one_hides_training_behind_rollout() -> None:
    def idle(strategy: str, lag: int) -> float:
        return predicted(strategy, 4, 2, EVEN, lag).idle

    assert idle("disaggregated", 0) == pytest.approx(0.5)
    assert idle("disaggregated", 1) == pytest.approx(0)
    assert idle("multiplexed", 0) == pytest.approx(1 / 3)
    assert idle("colocated", 0) == pytest.approx(0)


def times(strategy: str, gang: int, work: StepWork) -> tuple[float, str]:
    """Return the step on four devices with a lag of 1, and its limit."""
    prediction = predicted(strategy, 4, gang, work, 1)
    return prediction.step, prediction.limit


def test_changes_of_role_and_new_weights_lengthen_a_step() -> None:
    work = StepWork(rollout=200, train=200, switch=10, load=5)

    assert times("colocated", 4, work) == (115, "work")
    # The gang is away for ten, and all stand still for five.
    assert times("multiplexed", 4, work) == (115, "work")
    assert times("multiplexed", 3, work) == (112.5, "work")
    assert times("multiplexed", 1, work) == (200, "training"), "it stays in training"
    assert times("disaggregated", 2, work) == (105, "rollout")
    assert predicted("multiplexed", 4, 1, work, 1).idle == pytest.approx(1 - 400 / 800)


def test_a_split_without_a_device_that_rolls_out_never_makes_a_step() -> None:
    prediction = predicted("disaggregated", 4, 4, EVEN, 1)

    assert (prediction.step, prediction.idle, prediction.limit) == (inf, 1, "rollout")


def test_a_step_waits_for_its_groups() -> None:
    slow = StepWork(rollout=200, train=200, latency=600)

    assert times("multiplexed", 2, slow) == (300, "latency")
    assert predicted("multiplexed", 4, 2, slow, 3).step == 150


def test_the_best_gang_is_the_least_with_the_shortest_step_in_whole_workers() -> None:
    work = StepWork(rollout=600, train=200, latency=10_000)

    assert best_gang("multiplexed", 64, work, 1) == 16
    assert best_gang("disaggregated", 64, work, 1) == 16
    assert best_gang("multiplexed", 64, work, 1, unit=24) == 24
    assert best_gang("disaggregated", 2, StepWork(rollout=1, train=99), 1) == 1
    assert best_gang("multiplexed", 1, work, 1, unit=2) == 1


def test_a_gang_stays_in_training_where_changes_of_role_cost_more_than_they_gain() -> None:
    dear = StepWork(rollout=600, train=200, switch=1)

    # With changes (600 + 200 + 16) / 64, without them 600 / 48.
    assert predicted("multiplexed", 64, 16, dear, 1).step == 12.5
    assert best_gang("multiplexed", 64, dear, 1) == 16
    # (600 + 200 + 32) / 64 is shorter than 600 / 32.
    assert predicted("multiplexed", 64, 32, dear, 1).step == 13


def test_a_gang_trains_at_its_own_speed_and_its_part_of_the_rollout_is_missing() -> None:
    split = Split(everyone=10, gang=4, train=20)
    work = StepWork(rollout=300, train=200, switch=2, back=1, load=3)

    # It trains for ten, is ready after twelve, and away for thirteen.
    assert step_limits("multiplexed", split, work, 1) == {
        "work": (300 + 4 * 13) / 10 + 3,
        "training": 12,
    }
    assert step_limits("multiplexed", split, work, 0) == {"one after the other": 30 + 13 + 3}
    assert step_limits("disaggregated", split, work, 1) == {"rollout": 300 / 6 + 3, "training": 10}


def test_equal_devices_are_speeds_of_one_each() -> None:
    work = StepWork(rollout=600, train=200, switch=1)
    limits = step_limits("multiplexed", Split.of_equal(64, 16), work, 1)

    assert limits == {"work": (600 + 200 + 16) / 64, "training": 13.5}
    assert predicted("multiplexed", 64, 32, work, 1).step == 13
