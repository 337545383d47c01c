"""Turns that a session may have."""

from seamlessflow.consumers.trajectories.decisions.decide import decide
from seamlessflow.schemas import records as r
from tests.builders.records.commands import request_turn
from tests.builders.records.content import ids
from tests.builders.records.sessions import completed, failed, opened, started
from tests.builders.trajectories.decisions import context, kinds
from tests.builders.trajectories.session_builder import SessionBuilder

ASKED = request_turn(command_id="third", turn_id="t3")


def test_turns_beyond_those_that_the_session_may_have_are_refused() -> None:
    had = [started("t1"), completed(ids(3), "t1"), started("t2"), completed(ids(3), "t2")]
    built = SessionBuilder().apply(opened(turn_limit=2), *had)
    (event,) = decide(built.session, ASKED, context()).events
    assert isinstance(event, r.CommandRefused)
    assert (event.status, event.reason) == (409, "turn_limit")
    assert "all of its 2 turns" in event.detail

    free = SessionBuilder().apply(opened(turn_limit=3), *had)
    assert kinds(decide(free.session, ASKED, context()).events)[0] == "TurnStarted"


def test_choices_are_one_turn_and_failed_turns_are_none() -> None:
    had = [
        started("t1"),
        completed(ids(3), "t1"),
        started("t1b", choice=1),
        completed(ids(3), "t1b"),
        started("t2"),
        failed(turn_id="t2"),
    ]
    built = SessionBuilder().apply(opened(turn_limit=2), *had)
    assert kinds(decide(built.session, ASKED, context()).events)[0] == "TurnStarted"
