"""Long waits for a judge: one report for each time in which sessions wait too long."""

from seamlessflow.recorded.judging.requests import JudgementKey
from seamlessflow.recorded.judging.waits import JudgeWaits

WAIT_S = 10
HALF_MS = 5_000


def overdue(waits: JudgeWaits, now_ms: int) -> list[str]:
    return [report.what for report in waits.overdue("worker", now_ms)]


def test_a_judge_is_named_once_with_the_session_that_waits_longest() -> None:
    waits = JudgeWaits(WAIT_S)
    for number, name in enumerate("abc"):
        waits.begin(JudgementKey(name, "right"), 1_000 * number)
    waits.begin(JudgementKey("a", "kind"), 4_000)

    assert overdue(waits, HALF_MS - 1) == []
    (report,) = waits.overdue("worker", HALF_MS + 1_000)
    assert (report.what, report.process) == ("judge right", "worker")
    assert (report.since_ms, report.deadline_ms) == (0, HALF_MS)
    assert report.detail.startswith("2 sessions wait for it in worker, a for 6 s; after 10 s")
    assert overdue(waits, HALF_MS + 2_000) == []
    assert overdue(waits, HALF_MS + 4_000) == ["judge kind"]


def test_a_judge_that_came_back_is_named_again() -> None:
    waits = JudgeWaits(WAIT_S)
    first, second = JudgementKey("a", "right"), JudgementKey("b", "right")
    waits.begin(first, 0)
    assert overdue(waits, HALF_MS) == ["judge right"]
    waits.end(first)
    waits.begin(second, HALF_MS)
    assert overdue(waits, HALF_MS + 1) == []
    assert overdue(waits, 2 * HALF_MS) == ["judge right"]


def test_a_judgement_that_is_over_is_not_waited_for() -> None:
    waits = JudgeWaits(WAIT_S)
    key = JudgementKey("a", "right")
    waits.begin(key, 0)
    waits.end(key)
    waits.end(key)
    assert overdue(waits, 100_000) == []
