"""Sessions that ended since the last step: lengths, match rules, and those that do not count."""

from dataclasses import replace
from typing import Any

import pytest

from seamlessflow.schemas.records import ProgressStalled
from seamlessflow.trainer.data.figures.ended import SessionsOfStep
from tests.builders.trainer.fed_dataloader import FedDataloader
from tests.builders.trainer.trajectories import one_turn


def test_ended_sessions_are_counted_whatever_became_of_them_and_begin_anew() -> None:
    ended, session = SessionsOfStep(), one_turn("s", 1.0)
    ended.add(session)
    ended.add(replace(session, status="pruned", cause="setting", turns=3))
    metrics = ended.take()
    assert (metrics["begun_tokens/mean"], metrics["begun_turns/mean"]) == (3, 2)
    assert metrics["sessions_pruned"] == 1
    assert ended.take() == {}


def test_turns_that_a_rule_ended_are_counted_and_exempt_sessions_by_whether_they_passed() -> None:
    ended, session = SessionsOfStep(), one_turn("s", 1.0)
    prompt, answer = session.nodes[:2]
    for exempt, passed in ((False, False), (True, True), (True, False), (True, False)):
        judged = replace(answer, control="budget: thinking", control_exempt=exempt)
        ended.add(replace(session, nodes=(prompt, judged, *session.nodes[2:])), passed)
    ended.add(replace(session, status="pruned", cause="policy", limit="control"))
    metrics = ended.take()
    assert {
        name: metrics[name] for name in ("turns_stopped", "exempt_passed", "exempt_failed")
    } == {
        "turns_stopped": 1,
        "exempt_passed": 1,
        "exempt_failed": 2,
    }
    assert metrics["ended_at/control"] == 0.2
    assert "sessions_pruned" not in metrics


def test_turns_are_told_by_the_rule_that_matched_them() -> None:
    ended, session = SessionsOfStep(), one_turn("s", 1.0)
    ended.add(replace(session, match_rules={"root": 1, "extend": 4}))
    ended.add(replace(session, match_rules={"root": 1, "render": 2}))
    metrics = ended.take()
    assert {name: value for name, value in metrics.items() if name.startswith("matched/")} == {
        "matched/extend": 0.5,
        "matched/render": 0.25,
        "matched/root": 0.25,
    }


def test_sessions_without_their_reward_are_told_among_those_that_failed() -> None:
    fed = FedDataloader()
    fed.session("g-0", 0, 1.0, cause="infrastructure")
    fed.session("g-0", 1, 1.0, rewards=())
    fed.session("g-1", 0, 1.0, rewards=(), status="unrewarded", cause="environment")
    fed.session("g-1", 1, 1.0, rewards=(), status="unrewarded", purpose="eval")
    metrics = fed.loader.drop_metrics()
    assert (metrics["samples_failed"], metrics["samples_unrewarded"]) == (3, 2)
    assert "samples_unrewarded" not in fed.loader.drop_metrics()


def test_agents_that_failed_after_a_limit_and_count_are_counted_and_the_first_is_named() -> None:
    fed = FedDataloader()
    cut: dict[str, Any] = {"status": "truncated", "limit": "max_tokens"}
    fed.session("g-0", 0, 0.0, **cut, reason="Traceback\nValueError: no number in it")
    fed.session("g-0", 1, 0.0, **cut, reason="KeyError: 'code'")
    metrics = fed.loader.drop_metrics()
    assert metrics["failed_at_limit"] == 2
    (notice,) = (record for record in fed.returned if isinstance(record, ProgressStalled))
    for part in ("g-0.0.0", "max_tokens", "ValueError: no number in it", "agents.on_limit"):
        assert part in notice.detail


@pytest.mark.parametrize(
    "ended",
    [
        {"status": "truncated", "limit": "max_tokens", "reason": ""},
        {"status": "truncated", "limit": "context", "reason": "idle"},
        {"status": "truncated", "limit": "context", "reason": "too old"},
        {"status": "complete", "limit": "max_tokens", "reason": "done"},
        {"status": "truncated", "limit": "", "reason": "gave up"},
        {"status": "aborted", "limit": "max_tokens", "reason": "raised", "cause": "environment"},
        {"status": "truncated", "limit": "context", "reason": "raised", "purpose": "eval"},
    ],
)
def test_other_ends_are_no_failure_after_a_limit(ended: dict[str, Any]) -> None:
    fed = FedDataloader()
    fed.session("g-0", 0, 0.0, **ended)
    assert "failed_at_limit" not in fed.loader.drop_metrics()
    assert not [record for record in fed.returned if isinstance(record, ProgressStalled)]
