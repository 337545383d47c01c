"""The page Curves of a run with a dip, a restart, a loss and evaluations."""

import pytest

from seamlessflow.console.views.curves import CurvesPage, curves_page, curves_query
from seamlessflow.console.views.query import Query, QueryRejected
from tests.builders.console.course import AGAIN, DIP, LOST, RESUMED, STEPS, course_items, metrics_of
from tests.builders.console.memory_log import history_of

END = 10**6


def page(end: int = END, **query: str) -> CurvesPage:
    history, _ = history_of(course_items())
    return curves_page(history.course, end, curves_query(Query(query)))


def test_a_curve_has_each_step_once_with_its_newest_value() -> None:
    reward = page().curves[0]
    assert reward.name == "reward_mean"
    assert [step for step, _ in reward.points] == list(range(1, STEPS + 1))
    values = [metrics_of(step)["reward_mean"] for step in range(STEPS)]
    assert [value for _, value in reward.points] == pytest.approx(values)


def test_the_dip_is_in_the_chart_and_leads_to_its_step() -> None:
    areas = page().curves[0].areas
    assert min(areas, key=lambda area: area.value).step == DIP + 1


def test_usual_metrics_come_first_and_all_others_are_listed() -> None:
    shown = page()
    assert shown.metrics == ["reward_mean", "reward_std", "entropy", "grad_norm", *SECONDS]
    assert shown.others == {
        "": ["publish_s"],
        "return": ["return/p10"],
        "masked": ["masked/stale"],
        "mine": ["mine/score"],
    }


SECONDS = ("batch_s", "update_s")


def test_any_metric_of_the_run_can_be_asked_for() -> None:
    shown = page(metrics="mine/score, masked/stale, nothing")
    assert [curve.name for curve in shown.curves] == ["mine/score", "masked/stale"]


def test_a_range_of_steps_leaves_out_the_others() -> None:
    shown = page(first="5", last="7")
    assert [step for step, _ in shown.curves[0].points] == [5, 6, 7]
    assert [row.step for row in shown.newest] == [7, 6, 5]
    assert shown.evaluations == []


def test_a_smooth_curve_keeps_the_raw_one() -> None:
    curve = page(smooth="0.8").curves[0]
    assert len(curve.smooth) == len(curve.points) == STEPS
    lowest = min(value for _, value in curve.smooth[10:])
    assert lowest > metrics_of(DIP)["reward_mean"]


def test_an_evaluation_has_an_interval() -> None:
    (held,) = page().evaluations
    assert [point.step for point in held.points] == [10, 20, 30, 40]
    first = held.points[0]
    assert first.reward - first.low == pytest.approx(1.96 * 0.05)
    assert first.high - first.reward == pytest.approx(1.96 * 0.05)


def test_what_happened_stands_behind_its_step() -> None:
    marks = [(mark.kind, mark.step, mark.text) for mark in page().marks]
    behind = RESUMED - AGAIN
    assert marks == [
        ("resumed", behind, f"goes on behind step {behind}"),
        ("settings changed", behind, "trainer.max_staleness: 2 -> 4"),
        ("lost", LOST + 1, "rollout of w1: no_heartbeat"),
    ]


def test_a_moment_shows_what_was_there() -> None:
    items = course_items()
    history, _ = history_of(items)
    early = curves_page(history.course, 100, curves_query(Query({})))
    assert early.done < STEPS
    assert early.marks[-1].kind == "lost"
    later, _ = history_of(items[:100])
    assert curves_page(later.course, 100, curves_query(Query({}))) == early


def test_a_run_without_a_step_has_no_curve() -> None:
    shown = page(end=0)
    assert (shown.curves, shown.newest, shown.marks, shown.done) == ([], [], [], 0)


@pytest.mark.parametrize(
    "query, reason",
    [
        ({"smooth": "1"}, "smooth=1: must be at least 0 and below 1"),
        ({"smooth": "nan"}, "smooth=nan"),
        ({"first": "0"}, "first=0: must be between 1"),
        ({"metrics": ",".join(map(str, range(25)))}, "at most 24 at once"),
    ],
)
def test_what_cannot_be_shown_is_refused(query: dict[str, str], reason: str) -> None:
    with pytest.raises(QueryRejected, match=reason):
        curves_query(Query(query))


def test_another_run_stands_beside_with_its_own_steps() -> None:
    history, _ = history_of(course_items())
    early, _ = history_of(course_items()[:100])
    query = curves_query(Query({}))
    shown = curves_page(early.course, END, query, {"runs/other": history.course})
    curve = shown.curves[0]
    (other,) = curve.beside
    assert (other.run, shown.beside) == ("runs/other", ["runs/other"])
    assert other.points == curves_page(history.course, END, query).curves[0].points
    assert curve.frame.last == STEPS > curve.points[-1][0]
