"""Retries: each joins its own turn and never that of another call."""

from typing import Any

import pytest

from seamlessflow.consumers.trajectories.decisions.context import Contexts
from seamlessflow.consumers.trajectories.decisions.decide import decide
from seamlessflow.consumers.trajectories.decisions.repeats import RETRY_WINDOW_MS
from seamlessflow.consumers.trajectories.sessions.partition import Partition
from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Record
from tests.builders.records.commands import request_turn
from tests.builders.records.content import ids
from tests.builders.records.sessions import cancelled, completed, dispatched, failed, started
from tests.builders.trajectories.decisions import (
    OneTokenAMessage,
    context,
    fleet_with,
    kinds,
)
from tests.builders.trajectories.session_builder import SessionBuilder, session_after

ANSWERED_MS = 1_000


def answered(turn_id: str = "a", **more: Any) -> SessionBuilder:
    """Return a session with one turn, answered at `ANSWERED_MS`."""
    return session_after(
        started(turn_id, body_hash=b"body", **more),
        dispatched(turn_id),
        completed(ids(7), turn_id, at_ms=ANSWERED_MS),
    )


def joined(built: SessionBuilder, readable_since_ms: int = 0, **asked: Any) -> str | None:
    """Return the id of the turn that a request joins, or None if it starts one."""
    command = request_turn("new", **{"retry_count": 1, "expires_at_ms": 10**9, **asked})
    now_ms = max(command.issued_at_ms, readable_since_ms)
    decision = decide(
        built.session, command, context(now_ms=now_ms, readable_since_ms=readable_since_ms)
    )
    event = decision.events[0]
    if isinstance(event, r.TurnJoined):
        return event.turn_id
    assert isinstance(event, r.TurnStarted)
    return None


def test_a_retry_gets_the_answer_that_its_first_try_may_have_missed() -> None:
    assert joined(answered(), issued_at_ms=ANSWERED_MS + RETRY_WINDOW_MS) == "a"


def test_a_retry_whose_first_try_was_never_heard_gets_no_answer_of_long_ago() -> None:
    assert joined(answered(), issued_at_ms=ANSWERED_MS + RETRY_WINDOW_MS + 1) is None


def test_an_answer_that_the_agent_went_on_from_is_not_given_again() -> None:
    extended = answered().apply(started("b", parent_turn="a"))
    responded = answered().apply(started("b", previous_turn="a"))

    assert joined(extended, issued_at_ms=ANSWERED_MS + 1) is None
    assert joined(responded, issued_at_ms=ANSWERED_MS + 1) is None


def test_an_earlier_call_that_is_still_unanswered_is_found_behind_a_later_one() -> None:
    built = session_after(
        started("a", body_hash=b"body"),
        started("b", body_hash=b"body"),
        dispatched("b"),
        completed(ids(7), "b", at_ms=ANSWERED_MS),
        started("c", parent_turn="b"),
    )

    assert joined(built, issued_at_ms=ANSWERED_MS + 1) == "a"


@pytest.mark.parametrize("end", [failed("b"), cancelled("b")])
def test_a_retry_whose_first_try_failed_gets_no_other_call_s_answer(end: Record) -> None:
    built = answered().apply(started("b", body_hash=b"body"), end)

    assert joined(built, issued_at_ms=ANSWERED_MS + 1) is None


def test_a_turn_that_a_later_try_began_is_not_an_earlier_try_s() -> None:
    built = answered(retry_count=1)

    assert joined(built, issued_at_ms=ANSWERED_MS, retry_count=1) is None
    assert joined(built, issued_at_ms=ANSWERED_MS, retry_count=2) == "a"


def test_an_equal_body_for_another_module_or_choice_is_another_question() -> None:
    built = answered(module="planner", choice=1)

    assert joined(built, issued_at_ms=ANSWERED_MS, choice=1) is None
    assert joined(built, issued_at_ms=ANSWERED_MS, module="planner") is None
    assert joined(built, issued_at_ms=ANSWERED_MS, module="planner", choice=1) == "a"


def test_a_turn_under_way_is_joined_however_long_it_takes() -> None:
    built = session_after(started("a", body_hash=b"body"), dispatched("a"))

    assert joined(built, issued_at_ms=9 * RETRY_WINDOW_MS) == "a"


def test_the_minute_of_an_answer_begins_when_it_could_be_read() -> None:
    back_ms = ANSWERED_MS + 9 * RETRY_WINDOW_MS

    assert joined(answered(), back_ms, issued_at_ms=back_ms - 1_000) == "a"
    assert joined(answered(), back_ms, issued_at_ms=back_ms + RETRY_WINDOW_MS + 1) is None


def test_an_outage_behind_the_claim_counts_too() -> None:
    ended_ms = 500_000
    contexts = Contexts(
        fleet_with(), lambda _: OneTokenAMessage(), 1_000, outage_ended_ms=lambda: ended_ms
    )
    for claimed_ms in (ended_ms - 1, ended_ms + 1):
        partition = Partition(0, owner_since_ms=claimed_ms)
        assert contexts.now(partition).readable_since_ms == max(claimed_ms, ended_ms)


def test_a_key_means_its_turn_whenever_it_was() -> None:
    built = answered(idempotency_key="k").apply(started("b", parent_turn="a"))
    late_ms = ANSWERED_MS + 9 * RETRY_WINDOW_MS

    assert joined(built, issued_at_ms=late_ms, idempotency_key="k", retry_count=0) == "a"
    assert joined(built, issued_at_ms=late_ms, idempotency_key="other") is None


def test_a_choice_is_not_taken_for_another_call_s_key() -> None:
    built = answered(idempotency_key="k", choice=1)

    assert joined(built, idempotency_key="k.1") is None
    assert joined(built, idempotency_key="k", choice=0) is None
    assert joined(built, idempotency_key="k", choice=1) == "a"


@pytest.mark.parametrize("other", [{"body_hash": b"other"}, {"module": "planner"}])
def test_the_key_of_another_request_is_refused(other: dict[str, Any]) -> None:
    command = request_turn("new", idempotency_key="k", **other)

    (event,) = decide(answered(idempotency_key="k").session, command, context()).events

    assert isinstance(event, r.CommandRefused)
    assert (event.status, event.reason) == (422, "idempotency_key_reused")


@pytest.mark.parametrize(
    ("retry", "joins"),
    [
        ({"idempotency_key": "k"}, True),
        ({"retry_count": 1}, True),
        ({"retry_count": 0}, False),
        ({"idempotency_key": "other", "retry_count": 1}, False),
    ],
)
def test_a_retry_joins_but_an_equal_body_alone_is_a_new_sample(
    retry: dict[str, Any], joins: bool
) -> None:
    built = session_after(started("a", body_hash=b"body", idempotency_key="k"), dispatched("a"))

    decision = decide(built.session, request_turn("b", **retry), context())

    assert kinds(decision.events)[0] == ("TurnJoined" if joins else "TurnStarted")


def test_a_failed_turn_is_not_joined() -> None:
    built = session_after(started("a", idempotency_key="k"), failed("a"))

    decision = decide(built.session, request_turn("b", idempotency_key="k"), context())

    assert kinds(decision.events)[0] == "TurnStarted"


def test_a_retry_joins_the_latest_turn_of_its_key() -> None:
    built = session_after(started("a", idempotency_key="k"), failed("a"))
    built.apply(started("b", idempotency_key="k", body_hash=b"body"))

    (event,) = decide(built.session, request_turn("c", idempotency_key="k"), context()).events

    assert isinstance(event, r.TurnJoined)
    assert event.turn_id == "b"
