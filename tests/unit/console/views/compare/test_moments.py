"""Two moments of a run beside each other."""

from typing import Any

import pytest

from seamlessflow.console.log.moment import parse_moment
from seamlessflow.console.log.run_log import RunLog
from seamlessflow.console.views.compare.moments import (
    MomentsCompared,
    PictureAt,
    counts_changed,
    earlier_ends,
    moments_compared,
)
from seamlessflow.infra.kafka.client import Received
from seamlessflow.schemas.records import LineageStarted, StepCompleted
from tests.builders.console.content import STEPS, run_items
from tests.builders.console.course import AGAIN, POLICY, RESUMED, course_items, metrics_of
from tests.builders.console.course import STEPS as STEPS_OF_COURSE
from tests.builders.console.memory_log import history_of, items_of
from tests.builders.records import control, sessions

ALL_SESSIONS = "all sessions together"


def end_of_step(run_log: RunLog, number: int) -> str:
    """Return the moment at which a step, from 0, ended first."""
    rows = run_log.course.steps(2**62)
    return f"control:{next(row.offset for row in rows if row.step == number)}"


def compared(
    items: list[Received], *texts: str, policy: str = "", window: int = 10
) -> MomentsCompared:
    run_log, _ = history_of(items)
    moments = [
        text if ":" in text or not text else end_of_step(run_log, int(text)) for text in texts
    ]
    pictures = [run_log.picture(parse_moment(moment)) for moment in moments]
    sides = [PictureAt(picture, run_log.control_end(picture.cut)) for picture in pictures]
    return moments_compared(run_log.course, sides, policy, window)


def counts(shown: MomentsCompared, about: str) -> dict[str, tuple[Any, Any, int]]:
    return {count.name: (count.before, count.after, count.change) for count in shown.counts[about]}


def test_a_mean_is_over_the_last_steps_that_count_at_each_moment() -> None:
    shown = compared(course_items(), "9", "19", window=5)
    (reward,) = (metric for metric in shown.metrics if metric.name == "reward_mean")
    old = sum(metrics_of(step)["reward_mean"] for step in range(5, 10)) / 5
    new = sum(metrics_of(step)["reward_mean"] for step in range(15, 20)) / 5
    assert reward.before == pytest.approx(old)
    assert reward.after == pytest.approx(new)
    assert reward.change == pytest.approx(new - old)
    assert (shown.before.first, shown.before.last) == (6, 10)
    assert (shown.after.first, shown.after.last) == (16, 20)


def test_steps_that_a_restart_undid_do_not_count() -> None:
    items = course_items()
    (run_log, _) = history_of(items)
    offset = next(row.offset for row in run_log.course.events(2**62)[::-1] if _starts(row))
    shown = compared(items, f"control:{offset - 1}", f"control:{offset}")
    assert (shown.before.done, shown.after.done) == (RESUMED, RESUMED - AGAIN)
    assert shown.after.last == RESUMED - AGAIN
    assert counts(shown, "steps")[f"steps done of {POLICY}"] == (RESUMED, RESUMED - AGAIN, -AGAIN)


def _starts(item: Received) -> bool:
    return isinstance(item.record, LineageStarted)


def test_changes_above_the_spread_of_single_steps_come_first() -> None:
    shown = compared(course_items(), "9", "19")
    marked = [metric.name for metric in shown.metrics if metric.marked]
    assert marked == [metric.name for metric in shown.metrics[: len(marked)]]
    assert "reward_mean" in marked
    by_name = {metric.name: metric for metric in shown.metrics}
    assert by_name["entropy"].change == 0
    assert not by_name["entropy"].marked
    assert not by_name["masked/stale"].marked, "it alternates as before"


def test_a_metric_that_one_moment_lacks_has_no_difference() -> None:
    items = items_of(
        "control",
        [
            control.completed(0, metrics={"reward_mean": 0.5}),
            control.completed(1, metrics={"reward_mean": 0.5, "new": 2.0}),
        ],
    )
    by_name = {metric.name: metric for metric in compared(items, "0", "1", window=1).metrics}
    assert (by_name["new"].before, by_name["new"].after, by_name["new"].change) == (None, 2.0, None)
    assert by_name["reward_mean"].change == 0


def test_the_earlier_moment_comes_first_whatever_the_order() -> None:
    assert compared(course_items(), "19", "9") == compared(course_items(), "9", "19")


def test_settings_that_changed_between_are_named() -> None:
    (start,) = compared(course_items(), "20", "").starts
    assert dict(start.settings) == {"trainer.max_staleness": "2 -> 4"}
    assert start.step == RESUMED - AGAIN
    assert compared(course_items(), "5", "20").starts == []
    (first,) = compared(course_items(), "control:0", "5").starts
    assert (first.step, dict(first.settings)) == (0, {})


def test_the_state_of_the_run_is_counted_at_both() -> None:
    shown = compared(run_items(), "0", "")
    assert counts(shown, "steps")["steps done of policy"] == (1, STEPS, STEPS - 1)
    assert counts(shown, "steps")["version of policy"] == (1, STEPS, STEPS - 1)
    groups = counts(shown, "groups")
    assert groups["consumed so far"] == (2, 2 * STEPS, 2 * STEPS - 2)
    assert groups["running now"][1] == 1
    (before, after, change) = counts(shown, "sessions")["complete"]
    assert (after, change) == (30, after - before)


def test_hand_overs_failed_turns_and_tokens_are_sums_over_sessions() -> None:
    events = [
        sessions.claimed(),
        sessions.opened(),
        *(sessions.started(turn) for turn in "ab"),
        *(sessions.dispatched(turn) for turn in "ab"),
        sessions.dispatched("b", dispatch=2, worker="v"),
        sessions.completed(bytes(12), "a"),
        sessions.failed("b"),
    ]
    work = counts(compared(items_of("sessions", events), "sessions:0:1", ""), ALL_SESSIONS)
    assert work == {
        "turns completed": (0, 1, 1),
        "tokens sampled in them": (0, 3, 3),
        "hand-overs": (0, 1, 1),
        "turns failed": (0, 1, 1),
    }


def test_workers_and_warnings_between_are_listed() -> None:
    records = [
        control.joined("w"),
        control.stalled("rollout", detail="before"),
        control.assigned("w", "rollout", 1),
        control.acquired("w", "rollout", 1, version=3),
        control.joined("v"),
        control.stalled("rollout", detail="between"),
    ]
    shown = compared(items_of("control", records), "control:1", "control:5")
    assert [(worker.worker, worker.before, worker.after) for worker in shown.workers] == [
        ("v", "", "no role, joined"),
        ("w", "no role, joined", "rollout, acquired, version 3"),
    ]
    assert [warning.text for warning in shown.warnings] == ["between"]
    assert not shown.warnings_left_out


def test_a_run_without_a_record_of_control_can_be_compared() -> None:
    shown = compared(items_of("sessions", [sessions.claimed()]), "", "sessions:0:0")
    assert (shown.metrics, shown.starts, shown.workers) == ([], [], [])
    assert shown.before.moment == ""


def test_ends_of_steps_are_offered_over_the_whole_run() -> None:
    run_log, _ = history_of(course_items())
    ends = earlier_ends(run_log.course, "", 2**62)
    assert len(ends) <= 12
    assert ends[0].step == STEPS_OF_COURSE
    assert ends[-1].step <= 4
    newest = parse_moment(ends[0].moment)
    assert newest is not None
    assert isinstance(_record(run_log, newest.offset), StepCompleted)
    assert earlier_ends(run_log.course, "", newest.offset + 1)[0].step < STEPS_OF_COURSE
    assert earlier_ends(run_log.course, "", 0) == []


def _record(run_log: RunLog, offset: int) -> object:
    (item,) = run_log.records([(("control", 0), offset)])
    return run_log.decoder.decoded(item).record


def test_a_name_that_one_side_lacks_counts_as_none() -> None:
    changes = counts_changed({"a": 1, "b": 2}, {"b": 2, "c": 3})
    assert [(each.name, each.change) for each in changes] == [("a", -1), ("b", 0), ("c", 3)]
