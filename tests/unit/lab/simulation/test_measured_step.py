"""Work of a step, measured on `control`."""

import pytest

from seamlessflow.lab.simulation.measured_step import TooFewSteps, measured_step
from seamlessflow.scheduler.state.accounts.closed_form import StepWork
from seamlessflow.schemas.records import LineageStarted, Record
from tests.builders.records import control

HALF: list[Record] = [
    control.joined("a", at_ms=0, devices=(0, 1)),
    control.joined("b", at_ms=0, tags=("rollout",), devices=(2, 3)),
    control.assigned("b", at_ms=0),
    control.acquired("b", at_ms=0),
    control.admitted("g", at_ms=0),
    control.ready("g", at_ms=900),
    control.usage("b", decoding_ms=2_000, full_batch_ms=500, from_ms=0, at_ms=2_000),
    control.assigned("a", "train", 1, at_ms=0),
    control.released("a", at_ms=50, took_ms=50),
    control.acquired("a", "train", 1, at_ms=100, took_ms=50),
]
STEPS: list[Record] = [
    control.started(["a"], 0, at_ms=500),
    control.completed(0, at_ms=1_000),
    control.started(["a"], 1, at_ms=1_500),
    control.completed(1, at_ms=2_000),
]


def test_rollout_training_switches_and_latency_are_measured_a_step() -> None:
    measured = measured_step([*HALF, *STEPS])

    # 0.5 of 2 s of two devices, and 2 x 0.5 s of two devices, in two steps.
    assert measured.work == StepWork(rollout=0.5, train=1.0, switch=0.1, load=0.0, latency=0.9)
    assert (measured.steps, measured.step_s) == (2, 1.0)
    assert (measured.devices, measured.gang, measured.unit) == (4, 2, 2)


def test_the_gang_is_that_of_most_steps_whoever_else_could_train() -> None:
    third = [control.started(["a"], 2, at_ms=2_500, devices=6), control.completed(2, at_ms=3_000)]
    other = control.joined("c", at_ms=0, devices=(4, 5, 6, 7))

    assert measured_step([other, *HALF, *STEPS, *third]).gang == 2


def test_lag_and_changes_of_role_are_those_of_the_records() -> None:
    measured = measured_step([*HALF, *STEPS])
    assert (measured.lag, measured.changes) == (None, False)

    lineage = LineageStarted(
        at_ms=0, policy="p", lineage="a", step=0, settings=b'{"run": {"lag": 3}}'
    )
    measured = measured_step([lineage, *HALF, *STEPS, control.acquired("a", at_ms=2_100)])
    assert (measured.lag, measured.changes) == (3, True)


def test_times_of_a_rehearsal_are_divided_by_its_scale() -> None:
    measured = measured_step([*HALF, *STEPS]).divided(0.5)

    assert measured.work == StepWork(rollout=1.0, train=2.0, switch=0.2, load=0.0, latency=1.8)
    assert (measured.step_s, measured.devices) == (2.0, 4)


def test_a_log_of_one_step_is_too_short() -> None:
    with pytest.raises(TooFewSteps, match="1 completed"):
        measured_step([*HALF, *STEPS[:2]])


def test_the_start_of_a_process_is_no_change_of_role() -> None:
    def to_training(number: int, took_ms: int, incarnation: str = "t") -> list[Record]:
        at_ms = 3_000 + 100 * number
        return [
            control.released("a", assignment=number, at_ms=at_ms, took_ms=10),
            control.acquired(
                "a", "train", number, at_ms=at_ms + 50, took_ms=took_ms, incarnation=incarnation
            ),
        ]

    first = to_training(2, 10_700)
    assert measured_step([*HALF[:-2], *STEPS, *first]).work.switch == pytest.approx(10.71)
    later = [*first, *to_training(3, 70), *to_training(4, 90)]
    assert measured_step([*HALF[:-2], *STEPS, *later]).work.switch == pytest.approx(0.09)
    again = [*later, *to_training(5, 20_000, "started again"), *to_training(6, 80)]
    assert measured_step([*HALF[:-2], *STEPS, *again]).work.switch == pytest.approx(0.09)
