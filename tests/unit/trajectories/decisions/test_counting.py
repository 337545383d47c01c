"""How long a prompt would be, or why that cannot be said: as a turn would be answered."""

from typing import Any

import pytest

from consumers.trajectories.decisions.counting import count
from consumers.trajectories.sessions.session import Session
from schemas import records as r
from tests.builders.trajectories.story import closed, message, opened, told
from tests.unit.trajectories.decisions.test_decide import context, fields

TERMS = r.SessionTerms(policy="p", max_age_ms=1, max_idle_ms=1)


def asked(session: Session | None, used: bool = False, **more: Any) -> r.CommandAnswered:
    command = r.CountTokens(**fields("q"), messages=(message("user", "x"),), **more)
    return count(session, command, context(used=lambda session_id: used))


def test_an_open_session_is_counted_for() -> None:
    assert asked(told(opened()).known).tokens == 1


def test_a_session_that_nobody_opened_is_not_known() -> None:
    answer = asked(None)
    assert (answer.status, answer.reason) == (404, "unknown_session")


@pytest.mark.parametrize(
    ("session", "used"), [(told(opened(), closed()).known, True), (None, True)]
)
def test_a_closed_session_is_refused_as_for_a_turn(session: Session | None, used: bool) -> None:
    answer = asked(session, used)
    assert (answer.status, answer.reason) == (409, "session_closed")


def test_where_the_next_request_would_begin_a_session_it_is_counted_for() -> None:
    assert asked(None, terms=TERMS).tokens == 1
    assert asked(told(opened(), closed()).known, terms=TERMS).tokens == 1


def test_a_policy_without_weights_is_named() -> None:
    terms = r.SessionTerms(policy="other", max_age_ms=1, max_idle_ms=1)
    answer = asked(None, terms=terms)
    assert (answer.status, answer.reason) == (503, "unknown_policy")
    assert "'other'" in answer.detail
