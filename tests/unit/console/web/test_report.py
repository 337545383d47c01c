"""The report of a run: one file that asks nobody, with what people ask when a run is over."""

import re

import pytest

from seamlessflow.console.web.report import RunReporter
from seamlessflow.recorded.audit.auditor import AuditReport, CheckResult
from seamlessflow.recorded.audit.invariants.ledger import LogPlace, Violation
from tests.builders.console import hostile
from tests.builders.console.content import run_items
from tests.builders.console.course import STEPS, course_items
from tests.builders.console.memory_log import history_of
from tests.builders.console.recorded import recorded_items


def report(items: object, audit: AuditReport | None = None) -> str:
    history, _ = history_of(items)  # type: ignore[arg-type]
    return RunReporter(history, "runs/mine", None).html(audit)


def test_it_has_curves_marks_settings_and_no_address() -> None:
    text = report(course_items())
    assert f"{STEPS} steps" in text
    for part in ("reward_mean", "evaluation held", "settings changed", "trainer.max_staleness"):
        assert part in text
    addresses = re.findall(r'(?:src|href)="([^"]*)"', text)
    assert set(addresses) <= {"data:,"}


def test_it_has_the_messages_of_the_sessions_to_read() -> None:
    text = report(recorded_items())
    for why in ("one of the best", "one of the worst", "the longest", "most hand-overs"):
        assert why in text
    assert text.count('<div class="message">') > 10


def test_hostile_texts_are_shown_as_text() -> None:
    text = report(run_items())
    assert hostile.SCRIPT not in text
    assert text.count("<script") == 2  # data and script of the timeline
    assert "\x1b" not in text


@pytest.mark.parametrize("violations", [0, 1])
def test_it_says_what_the_audit_found(violations: int) -> None:
    result = CheckResult("turns", checked=5, open=0, not_checkable=0, violations=violations)
    violation = Violation("turns", LogPlace("sessions", 3, 7), "a turn twice")
    text = report(course_items(), AuditReport((result,), (violation,) * violations, records=9))
    assert ("The audit is clean" in text) == (not violations)
    assert ("a turn twice" in text) == bool(violations)


def test_a_run_of_which_nothing_is_there_yet_has_a_report() -> None:
    history, _ = history_of([])
    assert "Report of runs/mine" in RunReporter(history, "runs/mine", None).html(None)
