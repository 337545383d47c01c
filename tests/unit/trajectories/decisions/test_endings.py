"""Endings of sessions whose policy ran into a limit: its doing, not the environment's."""

import pytest

from seamlessflow.consumers.trajectories.decisions import deadlines
from seamlessflow.consumers.trajectories.decisions.decide import decide
from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Record
from tests.builders.records.commands import close_session
from tests.builders.records.content import ids
from tests.builders.records.sessions import (
    completed,
    dispatched,
    failed,
    refused,
    rewarded,
    started,
)
from tests.builders.trajectories.decisions import context
from tests.builders.trajectories.session_builder import session_after

TURN = (started(), dispatched())
CUT = (*TURN, completed(ids(3), finish_reason="length"))
OVERFLOW = (*TURN, completed(ids(3)), refused(status=400, reason="prompt_too_long"))
TURNS = (*TURN, completed(ids(3)), refused(status=409, reason="turn_limit"))
FULL = (started(max_context=3), dispatched(), completed(ids(3), finish_reason="length"))
CRASH = {"status": "aborted", "cause": "environment", "reason": "BadRequestError"}


def left_open(events: tuple[Record, ...], now_ms: int) -> tuple[str, str, str]:
    """Return status, cause and limit of the session that the manager closes itself."""
    overdue = deadlines.overdue(session_after(*events).session, context(now_ms=now_ms))
    (event,) = (record for record in overdue.events if isinstance(record, r.SessionClosed))
    return event.status, event.cause, event.limit


def ended(events: tuple[Record, ...], **close: object) -> tuple[str, str, str]:
    """Return status, cause and limit of the session that is closed behind these events."""
    command = close_session(command_id="close", **close)
    event = decide(session_after(*events).session, command, context()).events[0]
    assert isinstance(event, r.SessionClosed)
    return event.status, event.cause, event.limit


@pytest.mark.parametrize(
    ("events", "limit"),
    [(CUT, "max_tokens"), (FULL, "context"), (OVERFLOW, "context"), (TURNS, "turns")],
)
@pytest.mark.parametrize(
    "close", [CRASH, {"status": "unrewarded", "cause": "environment"}, {"status": "complete"}]
)
def test_a_session_that_ran_into_a_limit_is_the_policys_doing(
    events: tuple[Record, ...], limit: str, close: dict[str, object]
) -> None:
    assert ended(events, **close) == ("truncated", "policy", limit)


def test_an_answer_with_room_behind_it_was_cut_at_max_tokens() -> None:
    cut = (started(max_context=4), *CUT[1:])
    assert ended(cut, status="complete") == ("truncated", "policy", "max_tokens")


@pytest.mark.parametrize("too_old", [False, True])
@pytest.mark.parametrize(("events", "limit"), [(CUT, "max_tokens"), (OVERFLOW, "context")])
def test_a_session_that_its_client_left_open_after_a_limit_is_the_policys_doing_too(
    events: tuple[Record, ...], limit: str, too_old: bool
) -> None:
    now_ms = 1_000_000 if too_old else 200_000
    assert left_open(events, now_ms) == ("truncated", "policy", limit)


@pytest.mark.parametrize(
    "events",
    [
        (),
        (*TURN, completed(ids(3))),
        (refused(status=400, reason="prompt_too_long"),),
        (*CUT, started(turn_id="under-way")),
    ],
)
def test_a_session_that_was_left_open_otherwise_is_the_environments_doing(
    events: tuple[Record, ...],
) -> None:
    assert left_open(events, 1_000_000) == ("timeout", "environment", "")


@pytest.mark.parametrize(("rule", "cause"), [("retry", "environment"), ("drop", "setting")])
def test_it_may_be_tried_again_or_left_out(rule: str, cause: str) -> None:
    assert ended(OVERFLOW, **CRASH, on_limit=rule) == ("aborted", cause, "context")


def test_an_agent_that_judged_its_session_in_spite_of_a_limit_is_believed() -> None:
    assert ended((*CUT, rewarded()), status="complete") == ("complete", "policy", "max_tokens")


def test_infrastructure_that_failed_after_a_limit_stays_the_cause() -> None:
    close = {**CRASH, "cause": "infrastructure"}
    assert ended(CUT, **close) == ("aborted", "infrastructure", "max_tokens")


def test_an_agent_that_went_on_after_a_limit_and_failed_is_the_environments_doing() -> None:
    again = (started(turn_id="t2"), dispatched(turn_id="t2"), completed(ids(3), turn_id="t2"))
    assert ended((*OVERFLOW, *again), **CRASH) == ("aborted", "environment", "")


def test_a_first_prompt_that_is_too_long_is_not_the_policys_doing() -> None:
    too_long = (refused(status=400, reason="prompt_too_long"),)
    assert ended(too_long, **CRASH) == ("aborted", "environment", "")


def test_a_worker_that_finds_a_prompt_too_long_says_the_same() -> None:
    again = (started(turn_id="t2"), dispatched(turn_id="t2"))
    too_long = failed(turn_id="t2", reason="prompt_too_long", cause="policy")
    events = (*TURN, completed(ids(3)), *again, too_long)
    assert ended(events, **CRASH) == ("truncated", "policy", "context")


def test_time_is_a_limit_too_whose_worth_the_closer_decides() -> None:
    close = {"status": "timeout", "cause": "setting"}
    assert ended((*TURN, completed(ids(3))), **close) == ("timeout", "setting", "time")
