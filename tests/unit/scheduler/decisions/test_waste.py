"""Predicted idle shares and warnings."""

import pytest

from scheduler.decisions import waste
from scheduler.decisions.snapshot import snapshot
from scheduler.settings import SchedulerSection, SchedulerSettings
from scheduler.state.fleet import Fleet
from scheduler.state.state import State, apply
from schemas.records import PlanWarning, Record
from tests.builders.records import control
from tests.builders.scheduler.inputs import fold, joined_both, scheduler_settings


def measured(decoding_ms: int, steps: int = waste.MEASURED_STEPS) -> State:
    records: list[Record] = [
        control.claimed(),
        *joined_both("a"),
        control.joined("b", tags=("rollout",)),
    ]
    for step in range(steps):
        records += [
            control.usage("b", decoding_ms=decoding_ms),
            control.completed(step, took_ms=1_000),
        ]
    return fold(*records)


def warn(state: State, now_ms: int = 0, strategy: str = "multiplexed") -> list[PlanWarning]:
    settings = scheduler_settings(scheduler=SchedulerSection(policy=strategy))
    return waste.warnings(state, snapshot(state, Fleet(), settings, now_ms), settings)


def test_a_plan_that_wastes_time_is_warned_of_with_the_remedy() -> None:
    (warning,) = warn(measured(decoding_ms=200))

    assert warning.code == "idle_workers"
    assert warning.predicted_idle_share == pytest.approx(0.4)
    assert "2 or more devices that train" in warning.detail


def test_a_warning_is_not_repeated() -> None:
    state = measured(decoding_ms=200)

    assert not warn(apply(state, warn(state)[0]))


def test_a_plan_without_waste_or_without_measurements_is_not_warned_of() -> None:
    assert not warn(measured(decoding_ms=1_000))
    assert not warn(measured(decoding_ms=200, steps=2))
    assert not warn(measured(decoding_ms=0))


def test_workers_that_train_are_missed_at_once_where_a_batch_waits() -> None:
    state = fold(control.claimed(), control.joined("b", tags=("rollout",)), control.batch_ready(0))

    assert [w.code for w in warn(state, now_ms=31_000)] == ["gang_too_small"]


def test_an_evaluation_misses_no_worker_that_trains() -> None:
    state = fold(control.claimed(), control.joined("b", tags=("rollout",)))
    settings = SchedulerSettings()

    seen = snapshot(state, Fleet(), settings, 600_000)
    assert not waste.warnings(state, seen, settings)


def test_tags_that_cannot_work_are_warned_of_once_every_worker_had_time_to_come() -> None:
    state = fold(control.claimed(), control.joined("b", tags=("rollout",)))

    assert not warn(state, now_ms=1_000)
    assert not warn(state, now_ms=60_000), "a large model loads for longer"
    assert [w.code for w in warn(state, now_ms=120_000)] == ["gang_too_small"]
    only_train = fold(control.claimed(), control.joined("b", "train", ("train",)))
    codes = {w.code for w in warn(only_train, now_ms=60_000, strategy="colocated")}
    assert codes == {"no_rollout_worker", "unused_workers"}


def test_recorded_sessions_miss_no_worker_that_rolls_out() -> None:
    state = fold(control.claimed(), control.joined("b", "train", ("train",)))
    settings = SchedulerSettings()

    assert not waste.warnings(state, snapshot(state, Fleet(), settings, 60_000), settings)
