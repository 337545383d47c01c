"""Functions of the user's own: tried before a run, and refused with what is wrong with them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.builders.run_files import changed, faults, run_values


@pytest.fixture
def values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Mapping[str, Any]:
    """Return a configuration without a fault, for the working directory."""
    monkeypatch.chdir(tmp_path)
    return run_values(tmp_path)


@pytest.mark.parametrize(
    ("trainer", "line"),
    [
        (
            {"advantage": "mine:nothing"},
            "trainer.advantage: 'mine:nothing' cannot be called: module mine has no function no",
        ),
        (
            {"filters": {"mine:easyy": "drop"}},
            "trainer.filters: 'mine:easyy' cannot be called: module mine has no function easyy; "
            "did you mean easy?",
        ),
        (
            {"filters": {"mine:easy": "drop"}},
            "'mine:easy' is called with (group, rules), but it is defined as (group, rules, *, "
            "above): missing",
        ),
        (
            {"advantage": "mine:broken"},
            "'mine:broken' fails for a small input: {here}/mine.py, line 4: ZeroDivisionError: ",
        ),
        (
            {"loss": {"aggregation": "mine:short"}},
            "trainer.loss.aggregation: 'mine:short' cannot be used: for a small input it returned "
            "weights of shape [1], not of 3 chains",
        ),
    ],
)
def test_a_function_of_the_user_is_tried_before_the_run(
    values: Mapping[str, Any], trainer: dict[str, Any], line: str, tmp_path: Path
) -> None:
    Path("mine.py").write_text(
        "def easy(group, rules, *, above):\n    return max(group.returns) > above\n"
        "def broken(episodes, rules):\n    return 1 / 0\n"
        "def short(sessions_C, trained_C, settings):\n    return [1.0]\n"
    )
    (message,) = faults(changed(values, "trainer", **trainer))
    assert line.format(here=tmp_path) in message


def test_a_function_of_the_user_gets_its_settings(values: Mapping[str, Any]) -> None:
    Path("mine.py").write_text(
        "def easy(group, rules, *, above):\n    return max(group.returns) > above"
    )
    trainer = {"filters": {"mine:easy": "drop"}, "functions": {"mine:easy": {"above": 0.9}}}
    assert faults(changed(values, "trainer", **trainer)) == ()


def test_settings_of_a_strategy_that_the_run_does_not_have_are_refused(
    values: Mapping[str, Any],
) -> None:
    (line,) = faults(changed(values, "scheduler", functions={"mine:roles": {"kept": []}}))
    fault = "scheduler.functions: has settings for mine:roles, but scheduler.policy is multiplexed"
    assert line == fault
