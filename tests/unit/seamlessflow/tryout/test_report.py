"""Findings about an environment that was tried."""

import json
from dataclasses import replace
from typing import Any

import pytest

from seamlessflow.inspection.findings import Finding, Grade, failed
from seamlessflow.producers.agents.environments.leftovers import LeftBehind
from seamlessflow.tryout.facts import (
    CallFacts,
    EpisodeFacts,
    HistoryBreak,
    PackageFacts,
    TaskFacts,
    Tryout,
)
from seamlessflow.tryout.report import as_json, findings

CALL = CallFacts("/v1/chat/completions", 200, parameters=("model", "messages"))
EPISODE = EpisodeFacts(
    task_id="sum-1",
    seconds=0.5,
    status="complete",
    cause="policy",
    reason="",
    rewards={"reward": 0.25},
    returned=("metrics",),
    turns=1,
    chains=1,
    calls=[CALL],
    breaks=[],
    read_calls=0,
    left=LeftBehind((), ()),
)
TRIED = Tryout(
    PackageFacts("sums", {"sums": "1.2"}, "/python", "3.12.1"),
    TaskFacts(32, 0.5, "", ("level",), True),
    1.5,
    [EPISODE],
    (),
    (),
)


def tried(calls: Any = None, **changes: Any) -> Tryout:
    """Return the tryout with one episode that is changed."""
    episode = replace(EPISODE, **({"calls": calls} if calls is not None else {}), **changes)
    return replace(TRIED, episodes=[episode])


def about(what: str, seen: Tryout) -> Finding:
    [finding] = [finding for finding in findings(seen) if finding.what.startswith(what)]
    return finding


def test_an_environment_without_faults_has_good_findings_alone() -> None:
    results = findings(TRIED)
    assert {finding.grade for finding in results} == {Grade.OK}
    assert not failed(results)
    assert about("package", TRIED).detail == "sums 1.2; Python 3.12.1"
    shown = about("episode", TRIED).detail
    assert shown == "complete, reward 0.25; 1 call, 0.50 s; also returned: metrics"


def test_another_version_than_the_adapter_s_is_warned_of() -> None:
    package = replace(TRIED.package, other_versions="sums 1.0, and the adapter is made for 1.2")
    (finding,) = (
        each for each in findings(replace(TRIED, package=package)) if each.what == "package"
    )
    assert finding.grade is Grade.WARNING
    assert finding.detail == "sums 1.0, and the adapter is made for 1.2; Python 3.12.1"


def test_tasks_that_a_run_cannot_read_are_a_fault_and_nothing_is_played() -> None:
    seen = Tryout(TRIED.package, TaskFacts(3, 0.1, "task 2: id is null"), 0.0, (), (), ())
    assert about("tasks", seen).grade is Grade.FAILED
    assert [finding.what for finding in findings(seen)] == ["package", "tasks"]


def test_a_failed_episode_is_told_by_its_last_line() -> None:
    reason = "Traceback (most recent call last):\n  File\nKeyError: 'board'\n"
    seen = tried(status="aborted", cause="environment", reason=reason)
    finding = about("episode", seen)
    assert finding.grade is Grade.FAILED
    assert finding.detail.startswith("aborted, by the environment: KeyError: 'board'")


def test_an_environment_that_never_calls_is_warned_of() -> None:
    assert about("calls", tried([])).grade is Grade.WARNING


def test_a_refused_call_is_a_fault_with_the_gateway_s_words() -> None:
    refused = replace(CALL, status=400, fault="audio is not supported")
    finding = about("refused", tried([refused, refused]))
    assert finding.grade is Grade.FAILED
    assert finding.detail == "/v1/chat/completions: 2 calls with 400: audio is not supported"


def test_parameters_without_effect_are_named_once() -> None:
    calls = [replace(CALL, unread=("user", "store")), replace(CALL, unread=("user",))]
    finding = about("parameters", tried(calls))
    assert (finding.grade, finding.detail) == (Grade.WARNING, "without effect: user, store")


@pytest.mark.parametrize(
    ("call", "read", "grade"),
    [
        ({"called": "lookup"}, 1, Grade.OK),
        ({"called": "lookup"}, 0, Grade.FAILED),
        ({"called": "lookup", "unwritten": "cannot render"}, 0, Grade.FAILED),
        ({}, 0, Grade.OK),
    ],
)
def test_tools_must_be_written_by_the_template_and_read_again(
    call: dict[str, Any], read: int, grade: Grade
) -> None:
    calls = [replace(CALL, tools=("lookup",), **call)]
    assert about("tools", tried(calls, read_calls=read)).grade is grade


def test_a_changed_history_is_named_with_its_turn_and_message() -> None:
    at = HistoryBreak(3, "edited_history", 2, "user")
    finding = about("history", tried(chains=2, breaks=[at]))
    assert finding.grade is Grade.WARNING
    changed = "sum-1, turn 3: the environment changed its history, from message 2 (user)"
    assert finding.detail == f"2 chains a session; 1 turn with another history: {changed}"


def test_repeated_calls_and_schemas_are_warned_of() -> None:
    assert about("retries", tried([replace(CALL, repeats=1)])).grade is Grade.WARNING
    assert about("schema", tried([replace(CALL, by_schema=True)])).grade is Grade.WARNING


def test_what_is_left_is_told_and_warned_of_if_it_outlives_the_process() -> None:
    kept = tried(left=LeftBehind(("python -m server",), ("cache",)))
    assert about("leftovers", kept).grade is Grade.OK
    outlived = replace(TRIED, left=("python -m server",), written=("outputs",))
    finding = about("leftovers", outlived)
    assert finding.grade is Grade.WARNING
    assert "python -m server" in finding.detail
    assert "outputs" in finding.detail


def test_all_facts_and_findings_are_json() -> None:
    facts = json.loads(json.dumps(as_json(TRIED)))
    assert facts["episodes"][0]["rewards"] == {"reward": 0.25}
    assert [finding["what"] for finding in facts["findings"]] == [
        finding.what for finding in findings(TRIED)
    ]
