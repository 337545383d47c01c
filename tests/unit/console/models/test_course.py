"""The course of a run: what happened before an offset, and the steps that count."""

from seamlessflow.console.models.course import surviving
from seamlessflow.schemas import records as r
from tests.builders.console.course import (
    AGAIN,
    DIP,
    POLICY,
    RESUMED,
    STEPS,
    course_items,
    lineage,
    metrics_of,
)
from tests.builders.console.memory_log import history_of, items_of
from tests.builders.records import control


def test_the_steps_of_a_moment_are_those_before_it() -> None:
    items = course_items()
    history, _ = history_of(items)
    course = history.course
    for end in range(0, len(items) + 1, 7):
        records = [history.decoder.decoded(item).record for item in items[:end]]
        completed = [record.step for record in records if isinstance(record, r.StepCompleted)]
        assert [row.step for row in course.steps(end)] == completed


def test_a_step_has_the_metrics_that_its_record_has() -> None:
    history, _ = history_of(course_items())
    course = history.course
    row = course.steps(10**6)[DIP]
    assert course.metrics(row) == metrics_of(DIP)
    assert course.value(row, "reward_mean") == 0.1
    assert course.value(row, "no_metric") is None


def test_a_metric_that_comes_later_is_missing_before() -> None:
    records = [control.completed(0, metrics={"a": 1.0}), control.completed(1, metrics={"b": 2.0})]
    history, _ = history_of(items_of("control", records))
    first, second = history.course.steps(2)
    assert history.course.metrics(first) == {"a": 1.0}
    assert history.course.value(first, "b") is None
    assert history.course.metrics(second) == {"b": 2.0}


def test_a_restart_undoes_the_steps_behind_its_checkpoint() -> None:
    history, _ = history_of(course_items())
    rows = history.course.steps(10**6)
    starts = history.course.events(10**6)
    kept = surviving(rows, starts, POLICY)
    assert [row.step for row in kept] == list(range(STEPS))
    assert {row.lineage for row in kept[: RESUMED - AGAIN]} == {"a"}
    assert {row.lineage for row in kept[RESUMED - AGAIN :]} == {"b"}


def test_steps_that_are_not_made_again_yet_are_gone() -> None:
    records = [
        lineage("a", "", 0),
        *(control.completed(step, policy=POLICY) for step in range(3)),
        lineage("b", "a", 1),
    ]
    history, _ = history_of(items_of("control", records))
    course = history.course
    assert [row.step for row in surviving(course.steps(5), course.events(5), POLICY)] == [0]
    assert [row.step for row in surviving(course.steps(4), course.events(4), POLICY)] == [0, 1, 2]


def test_another_policys_restart_undoes_nothing() -> None:
    records = [
        control.completed(0, policy="x"),
        control.completed(0, policy="y"),
        lineage("b", "a", 0),
    ]
    history, _ = history_of(items_of("control", records))
    course = history.course
    assert len(surviving(course.steps(9), course.events(9), "x")) == 1


def test_a_groups_records_and_drops_are_found_by_their_offsets() -> None:
    records = [
        control.admitted("g"),
        control.ready("g"),
        control.dropped("g"),
        control.dropped("h"),
    ]
    history, _ = history_of(items_of("control", records))
    course = history.course
    assert list(course.group("g", 9)) == [0, 1]
    assert list(course.group("g", 1)) == [0]
    assert list(course.group("unknown", 9)) == []
    assert list(course.drops(0, 9)) == [2, 3]
    assert list(course.drops(3, 9)) == [3]


def test_a_group_has_the_reason_of_its_first_drop_from_its_offset_on() -> None:
    drops = [control.dropped("g", reason="stale"), control.dropped("g", reason="expired")]
    history, _ = history_of(items_of("control", [control.admitted("g"), *drops]))
    course = history.course
    assert [course.drop_reason("g", end) for end in range(4)] == ["", "", "stale", "stale"]
    assert course.drop_reason("another", 4) == ""
