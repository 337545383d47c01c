"""Times of steps and changes of role as they follow from `control`."""

import pytest

from seamlessflow.lab.calibration.rates import TrainedStep, step_times, training_line
from tests.builders.records import control as c


def test_a_step_counts_from_when_gang_and_batch_were_there() -> None:
    metrics = {"publish_s": 0.25}
    times = step_times(
        [
            c.joined("w0", devices=(0, 1)),
            c.batch_ready(0, groups=("a",), at_ms=1_000),
            c.assigned("w0", "train", 1, at_ms=1_100),
            c.acquired("w0", "train", 1, at_ms=1_300),
            c.started(("w0",), at_ms=1_350),
            c.completed(0, at_ms=3_000, metrics=metrics),
            c.started(("w0",), 1, at_ms=4_500),
            c.batch_ready(1, groups=("b",), at_ms=4_000),
        ]
    )

    (step,) = times.steps
    assert (step.groups, step.devices, step.publish_s) == (("a",), 2, 0.25)
    assert step.took_s == pytest.approx(1.45)


def test_steps_of_several_policies_with_the_same_number_are_kept_apart() -> None:
    times = step_times(
        [
            c.joined("w0", devices=(0, 1)),
            c.batch_ready(0, groups=("a",), policy="x", at_ms=1_000),
            c.batch_ready(0, groups=("b",), policy="y", at_ms=1_500),
            c.started(("w0",), policy="x", at_ms=1_600),
            c.started(("w1",), policy="y", at_ms=1_700),
            c.completed(0, policy="y", at_ms=2_000),
            c.completed(0, policy="x", at_ms=3_000),
        ]
    )

    assert [(step.groups, step.devices) for step in times.steps] == [(("b",), 1), (("a",), 2)]
    assert [step.took_s for step in times.steps] == pytest.approx([0.5, 2.0])


def test_changes_of_role_count_from_their_assignment_and_first_roles_do_not() -> None:
    times = step_times(
        [
            c.assigned("w0", "rollout", 1, at_ms=0),
            c.acquired("w0", "rollout", 1, at_ms=900),
            c.paused(running=3, at_ms=1_000),
            c.resumed(paused_ms=40, at_ms=1_040),
            c.assigned("w0", "train", 2, at_ms=2_000),
            c.released("w0", "rollout", 2, at_ms=2_030, took_ms=30, handed_back=2),
            c.acquired("w0", "train", 2, at_ms=2_100),
        ]
    )

    assert times.load_ms == [40]
    assert (times.released_ms, times.changed_ms) == ({"rollout": [30]}, {"train": [100]})
    assert times.held == 5


def test_nothing_counts_that_ended_before_the_time_that_is_given() -> None:
    records = [c.started(("w0",), at_ms=0), c.completed(0, at_ms=1_000), c.resumed(at_ms=1_000)]

    times = step_times(records, since_ms=1_001)

    assert not times.steps
    assert not times.load_ms


@pytest.mark.parametrize(
    ("took_s", "line"),
    [
        ((3.0, 5.0), (1.0, 0.2)),
        ((5.0, 3.0), (4.0, 0.0)),  # the longer step took less time
        ((1.0, 4.0), (0.0, 2.5 / 15)),  # less than nothing for a step without a token
    ],
)
def test_a_line_through_the_steps_has_no_negative_part(
    took_s: tuple[float, float], line: tuple[float, float]
) -> None:
    tokens = {"a": 10, "b": 40}
    steps = [TrainedStep(("a",), 1, took_s[0], 0), TrainedStep(("b",), 2, took_s[1], 0)]

    assert training_line(steps, tokens) == pytest.approx(line)


def test_a_step_without_a_fixed_part_has_none_and_not_what_rounding_leaves() -> None:
    tokens = {"a": 10, "b": 40}
    for took_s in ((0.1, 0.7), (1.1, 4.9), (0.3, 1.3)):
        steps = [TrainedStep(("a",), 1, took_s[0], 0), TrainedStep(("b",), 1, took_s[1], 0)]
        fit = training_line(steps, tokens)
        assert fit is not None and fit[0] == 0


def test_steps_of_unknown_groups_have_no_line() -> None:
    assert training_line([TrainedStep(("a",), 1, 1.0, 0)], {}) is None
