"""Predicted idle shares and warnings."""

import pytest

from seamlessflow.scheduler.decisions import waste
from seamlessflow.scheduler.decisions.snapshot import snapshot
from seamlessflow.scheduler.settings import SchedulerSection, SchedulerSettings
from seamlessflow.scheduler.state.fleet import Fleet
from seamlessflow.scheduler.state.state import State, apply
from seamlessflow.schemas.records import PlanWarning, Record
from tests.builders.records import control
from tests.builders.scheduler.inputs import fold, joined_both, scheduler_settings


def measured(decoding_ms: int, steps: int = waste.MEASURED_STEPS, *more: Record) -> State:
    records: list[Record] = [
        control.claimed(),
        *joined_both("a"),
        control.joined("b", tags=("rollout",)),
        *more,
    ]
    for step in range(steps):
        records += [
            control.usage("b", decoding_ms=decoding_ms),
            control.completed(step, took_ms=1_000),
        ]
    return fold(*records)


def warn(state: State, now_ms: int = 0, strategy: str = "multiplexed") -> list[PlanWarning]:
    settings = scheduler_settings(scheduler=SchedulerSection(policy=strategy))
    return waste.warnings(
        state, state.first, snapshot(state, state.first, Fleet(), settings, now_ms), settings
    )


def test_a_plan_that_wastes_time_is_warned_of_with_the_remedy() -> None:
    (warning,) = warn(measured(decoding_ms=200))

    assert warning.code == "idle_workers"
    assert warning.predicted_idle_share == pytest.approx(0.4)
    assert "2 or more devices that train" in warning.detail


def test_a_warning_names_its_policy_where_there_are_several() -> None:
    settings = scheduler_settings()
    names = (settings.run.policy, "coder")
    several = settings.model_copy(
        update={"run": settings.run.model_copy(update={"policies": names})}
    )
    state = measured(decoding_ms=200)
    (warning,) = waste.warnings(
        state, state.first, snapshot(state, state.first, Fleet(), several, 0), several
    )

    assert warning.detail.startswith(f"policy {settings.run.policy}: a step takes")


def test_a_warning_has_the_figures_of_its_prediction() -> None:
    (warning,) = warn(measured(decoding_ms=200))

    assert warning.figures == {
        "rollout_ms": 200,
        "train_ms": 1_000,
        "switch_ms": 0,
        "gang": 1,
        "devices": 2,
        "needed": 2,
    }


def test_measured_changes_of_role_are_a_part_of_the_prediction() -> None:
    there_and_back: list[Record] = [
        record
        for role, before in (("train", "rollout"), ("rollout", "train"))
        for record in (
            control.released("a", before, took_ms=0),
            control.acquired("a", role, took_ms=200),
        )
    ]
    assert not warn(measured(3_000)), "without them no time is lost"
    (warning,) = warn(measured(3_000, waste.MEASURED_STEPS, *there_and_back))

    # Of two devices, 3,000 of rollout, 1,000 of training, and 400 of changes that one makes.
    assert warning.predicted_idle_share == pytest.approx(1 - 4_000 / 4_400)
    assert warning.figures["switch_ms"] == 400
    assert "a change to training and back takes 0.4 s" in warning.detail
    assert "more groups in a step" in warning.detail


def test_a_remedy_names_nothing_that_the_run_has_already() -> None:
    (warning,) = warn(measured(decoding_ms=200))

    assert warning.detail.endswith("Less is idle with 2 or more devices that train")
    (other,) = warn(measured(decoding_ms=200), strategy="disaggregated")
    assert other.detail.endswith("Less is idle with multiplexed, 2 or more devices that train")


def test_batches_that_come_later_than_their_work_takes_wait_for_their_groups() -> None:
    batches = [control.batch_ready(step, at_ms=3_000 * step) for step in range(4)]
    (warning,) = warn(measured(200, waste.MEASURED_STEPS, *batches))

    assert "A batch comes every 3 s, where its work takes 1 s: its groups take" in warning.detail
    assert "Less is idle" not in warning.detail


def test_a_short_change_of_role_is_not_said_to_take_no_time() -> None:
    there_and_back: list[Record] = [
        record
        for role, before in (("train", "rollout"), ("rollout", "train"))
        for record in (
            control.released("a", before, took_ms=0),
            control.acquired("a", role, took_ms=17),
        )
    ]
    (warning,) = warn(measured(200, waste.MEASURED_STEPS, *there_and_back))

    assert "a change to training and back takes 0.034 s" in warning.detail


@pytest.mark.parametrize("strategy", ["bidirectional", "adaptive", "my.module:function"])
def test_a_strategy_without_a_closed_form_is_not_warned_of_idle_time(strategy: str) -> None:
    assert not warn(measured(decoding_ms=200), strategy=strategy)


def test_new_weights_and_computing_again_are_a_part_of_the_prediction() -> None:
    state = measured(3_000)
    assert not warn(state)
    stands_still: list[Record] = []
    for step in range(waste.MEASURED_STEPS):
        stands_still += [
            control.resumed(worker="a", paused_ms=300),
            control.resumed(worker="b", paused_ms=200),
            control.usage("b", decoding_ms=3_200, full_batch_ms=3_000, recomputing_ms=200),
            control.completed(step, took_ms=1_100, metrics={"publish_s": 0.1}),
        ]
    (warning,) = warn(fold(*joined_both("a"), control.joined("b"), *stands_still))

    # Of two devices, 3,000 of rollout, 1,000 of training, and 800 of new weights.
    assert warning.predicted_idle_share == pytest.approx(1 - 4_000 / 4_800)
    assert warning.figures["load_ms"] == 400
    assert "0.4 s a device go to new weights" in warning.detail


def test_a_warning_is_not_repeated() -> None:
    state = measured(decoding_ms=200)

    assert not warn(apply(state, warn(state)[0]))


def test_a_plan_without_waste_or_without_measurements_is_not_warned_of() -> None:
    assert not warn(measured(decoding_ms=1_000))
    assert not warn(measured(decoding_ms=200, steps=2))
    assert not warn(measured(decoding_ms=0))


def test_workers_that_train_are_missed_at_once_where_a_batch_waits() -> None:
    state = fold(control.claimed(), control.joined("b", tags=("rollout",)), control.batch_ready(0))

    (warning,) = warn(state, now_ms=31_000)
    assert (warning.code, warning.figures) == ("gang_too_small", {"devices": 0, "needed": 1})


def test_an_evaluation_misses_no_worker_that_trains() -> None:
    state = fold(control.claimed(), control.joined("b", tags=("rollout",)))
    settings = SchedulerSettings()

    seen = snapshot(state, state.first, Fleet(), settings, 600_000)
    assert not waste.warnings(state, state.first, seen, settings)


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

    assert not waste.warnings(
        state, state.first, snapshot(state, state.first, Fleet(), settings, 60_000), settings
    )
