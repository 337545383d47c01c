"""Time that software takes: the delays between a last group and its step."""

from seamlessflow.rehearsal.software import step_delays, uncovered
from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Record
from tests.builders.records import control


def batch(step: int, *ready_ms: int, policy: str = "") -> list[Record]:
    """Return groups that are ready at these times, and 5 ms after the last one their batch."""
    groups = tuple(f"{policy}{step}-{number}" for number in range(len(ready_ms)))
    return [
        *(
            control.ready(group, at_ms=at_ms, policy=policy)
            for group, at_ms in zip(groups, ready_ms, strict=True)
        ),
        control.batch_ready(step, at_ms=max(ready_ms) + 5, groups=groups, policy=policy),
    ]


def start(step: int, at_ms: int, *workers: str, policy: str = "") -> r.StepStarted:
    return control.started(workers or ("a",), step, at_ms=at_ms, policy=policy)


def test_a_delay_lasts_from_the_last_group_of_the_batch_to_its_step() -> None:
    log = [*batch(1, 100, 200), start(1, 212)]
    log += [control.completed(1, at_ms=300), *batch(2, 400), start(2, 430)]
    assert step_delays(log) == [12, 30]


def test_changes_of_role_of_the_gang_are_the_time_of_devices() -> None:
    log = [
        *batch(1, 200),
        control.released("a", "rollout", 1, at_ms=260, took_ms=40),
        control.acquired("a", "train", 1, at_ms=290, took_ms=20),
        control.acquired("b", "train", 2, at_ms=280, took_ms=60),
        control.acquired("of another gang", "rollout", 3, at_ms=300, took_ms=100),
        start(1, 300, "a", "b"),
    ]
    # 20 ms until the first of them begins, and 10 ms after the last one has ended.
    assert step_delays(log) == [30]


def test_a_batch_that_waits_for_an_earlier_step_waits_for_devices() -> None:
    log = [*batch(1, 100), start(1, 110), *batch(2, 150)]
    log += [control.completed(1, at_ms=500), start(2, 507)]
    assert step_delays(log) == [10, 7]


def test_a_step_of_another_policy_holds_up_those_that_need_its_workers() -> None:
    log = [*batch(1, 100, policy="x"), start(1, 110, "a", policy="x")]
    log += [*batch(1, 150, policy="y"), start(1, 170, "b", policy="y"), *batch(1, 150, policy="z")]
    log += [control.completed(1, at_ms=500, policy="x"), start(1, 507, "a", policy="z")]
    assert step_delays(log) == [10, 20, 7]


def test_a_step_that_starts_again_counts_once_and_a_batch_without_groups_from_itself() -> None:
    log = [control.batch_ready(1, at_ms=100), start(1, 110), start(1, 900)]
    assert step_delays(log) == [10]


def test_what_lies_in_no_span_is_left() -> None:
    assert uncovered((10, 20), []) == 10
    assert uncovered((10, 20), [(0, 12), (14, 16), (15, 17), (19, 30)]) == 4
    assert uncovered((10, 20), [(0, 30), (12, 13)]) == 0
    assert uncovered((20, 10), []) == 0
