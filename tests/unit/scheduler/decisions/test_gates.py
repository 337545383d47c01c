"""Optional changes of role: made only if they pay."""

from dataclasses import replace

import pytest

from seamlessflow.scheduler.decisions.gates import may_leave
from seamlessflow.scheduler.decisions.snapshot import MeanCosts, Snapshot, WorkerView

TAGS = frozenset({"rollout", "train"})
IDLE = WorkerView(name="a", tags=TAGS, able=TAGS, role="train", acquired_ms=0)
OTHER = WorkerView(name="b", tags=TAGS, able=TAGS, role="rollout", acquired_ms=0)
CROWD = tuple(OTHER._replace(name=f"c{number}") for number in range(6))
COSTS = MeanCosts(group=100, to_train=100, to_rollout=100)
NOW = Snapshot(now_ms=1_000, workers=(IDLE, OTHER), missing=5, running=8, ended_ms=950, costs=COSTS)


def test_a_worker_leaves_when_rollout_in_the_pause_saves_more_than_the_switches_cost() -> None:
    assert may_leave(NOW, IDLE)
    assert may_leave(replace(NOW, batch_ms=600, costs=replace(COSTS, batch=900)), IDLE)
    # One device in two: the pause must be 1.5 x (100 + 100 x 2).
    assert not may_leave(replace(NOW, costs=replace(COSTS, group=90)), IDLE)


@pytest.mark.parametrize(
    "now",
    [
        replace(NOW, costs=MeanCosts(group=100, to_train=300, to_rollout=300)),
        replace(NOW, missing=1),
        replace(NOW, missing=5, workers=(IDLE, OTHER, *CROWD)),
        replace(NOW, batch_ms=600, costs=replace(COSTS, batch=800)),
        replace(NOW, min_dwell_ms=2_000),
        replace(NOW, running=0),
    ],
    ids=[
        "switch costs more",
        "batch is nearly there",
        "one of many",
        "batch is due",
        "just came",
        "nothing to roll out",
    ],
)
def test_a_worker_stays_when_it_does_not_pay(now: Snapshot) -> None:
    assert not may_leave(now, IDLE)


@pytest.mark.parametrize("missing", [5, 0], ids=["groups missing", "a batch to spare"])
def test_behind_the_last_step_a_worker_leaves_for_the_evaluation(missing: int) -> None:
    over = replace(NOW, missing=missing, over=True, costs=replace(COSTS, group=1))
    assert may_leave(over, IDLE)
    assert not may_leave(replace(over, running=0), IDLE)


def test_a_worker_stays_until_it_has_its_role() -> None:
    assert not may_leave(NOW, IDLE._replace(acquired_ms=None))


def test_a_worker_that_waited_in_vain_leaves_once_in_sixty_four_switches_there_and_back() -> None:
    waiting = replace(NOW, missing=0, ended_ms=12_500)

    assert not may_leave(replace(waiting, now_ms=12_790), IDLE), "has held training too short"
    assert may_leave(replace(waiting, now_ms=12_801), IDLE)
    assert not may_leave(replace(waiting, now_ms=12_801, ended_ms=12_700), IDLE)


def test_a_worker_leaves_when_no_other_rolls_out() -> None:
    alone = replace(NOW, workers=(IDLE,), costs=MeanCosts(group=1, to_train=9e9, to_rollout=9e9))

    assert may_leave(alone, IDLE)


def test_costs_that_were_not_measured_are_measured_by_moving() -> None:
    assert may_leave(replace(NOW, costs=MeanCosts()), IDLE)


def test_a_worker_stays_for_a_batch_that_is_complete_and_only_has_to_be_announced() -> None:
    complete = replace(NOW, missing=0, workers=(IDLE,), costs=MeanCosts())

    assert not may_leave(complete, IDLE)
    assert may_leave(replace(complete, now_ms=1_500), IDLE)
