"""Counts of a prompt's tokens, and errors equal to those that a turn would get."""

from typing import Any

import pytest

from seamlessflow.consumers.trajectories.decisions.counting import count
from seamlessflow.consumers.trajectories.sessions.session import Session
from seamlessflow.schemas import records as r
from tests.builders.records.commands import count_tokens
from tests.builders.records.sessions import closed, opened
from tests.builders.trajectories.decisions import context
from tests.builders.trajectories.session_builder import session_after

TERMS = r.SessionTerms(policy="p", max_age_ms=1, max_idle_ms=1)


def asked(session: Session | None, used: bool = False, **more: Any) -> r.CommandAnswered:
    command = count_tokens(**more)
    return count(session, command, context(used=lambda session_id: used))


def test_an_open_session_is_counted_for() -> None:
    assert asked(session_after(opened()).session).tokens == 1


def test_a_session_that_nobody_opened_is_not_known() -> None:
    answer = asked(None)
    assert (answer.status, answer.reason) == (404, "unknown_session")


@pytest.mark.parametrize(
    ("session", "used"), [(session_after(opened(), closed()).session, True), (None, True)]
)
def test_a_closed_session_is_refused_as_for_a_turn(session: Session | None, used: bool) -> None:
    answer = asked(session, used)
    assert (answer.status, answer.reason) == (409, "session_closed")


def test_where_the_next_request_would_begin_a_session_it_is_counted_for() -> None:
    assert asked(None, terms=TERMS).tokens == 1
    assert asked(session_after(opened(), closed()).session, terms=TERMS).tokens == 1


def test_a_policy_without_weights_is_named() -> None:
    terms = r.SessionTerms(policy="other", max_age_ms=1, max_idle_ms=1)
    answer = asked(None, terms=terms)
    assert (answer.status, answer.reason) == (503, "unknown_policy")
    assert "'other'" in answer.detail
