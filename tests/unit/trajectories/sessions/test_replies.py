"""Replies that gateways get for events."""

from typing import Any

import pytest

from seamlessflow.consumers.trajectories.sessions import fold
from seamlessflow.consumers.trajectories.sessions.replies import replies
from seamlessflow.schemas import records as r
from tests.builders.records import sessions
from tests.builders.records.content import ids
from tests.builders.records.sessions import completed, dispatched, progressed, started
from tests.builders.trajectories.session_builder import SessionBuilder, session_after


def joined(built: SessionBuilder, gateway: str = "g") -> list[Any]:
    """Return the replies to a retry that joins the turn now."""
    reply = r.ReplyAddress(partition=1, gateway=gateway)
    return replies_to(built, sessions.joined(at_ms=50, reply=reply))


def replies_to(built: SessionBuilder, event: r.Record) -> list[Any]:
    """Return the replies that follow from an event."""
    folded = fold.apply(built.session, event, built.offset, lambda _: "exact")
    return [reply for _, reply in replies(event, folded)]


def gateways(built: SessionBuilder, event: r.Record) -> list[str]:
    """Return the gateways that get a reply for an event."""
    return [reply.gateway for reply in replies_to(built, event)]


def test_a_retry_that_joined_a_turn_which_ended_meanwhile_is_told_so() -> None:
    cancelled = sessions.cancelled(at_ms=40)

    (reply,) = joined(session_after(started("a"), dispatched("a"), cancelled))

    assert isinstance(reply, r.CommandAnswered)
    assert (reply.command_id, reply.status, reply.reason) == ("retry", 503, "turn_ended")


def test_a_retry_that_joined_a_turn_under_way_waits_for_it() -> None:
    (reply,) = joined(session_after(started("a"), dispatched("a")))

    assert isinstance(reply, r.CommandAnswered)
    assert (reply.turn_id, reply.status) == ("a", 200)


def test_an_answer_says_what_ended_it_to_whoever_waits_for_it() -> None:
    built = session_after(started("a"), dispatched("a"))
    event = completed(ids(3, 4), stop_sequence="END", reasoning_tokens=1)

    (reply,) = replies_to(built, event)
    _, again = joined(built)

    for answer in (reply, again):
        assert isinstance(answer, r.ReplyFinished)
        assert (answer.finish_reason, answer.stop_sequence) == ("stop", "END")
        assert (answer.completion_tokens, answer.reasoning_tokens) == (2, 1)


@pytest.mark.parametrize("stream", [False, True])
def test_whoever_asked_first_gets_the_answer_as_well_as_a_retry_elsewhere(stream: bool) -> None:
    built = session_after(started("a", stream=stream), dispatched("a"))
    to_retry = joined(built, "h")
    progress = progressed(ids(7), delta=b"{}")
    end = completed(ids(8), token_offset=1)

    assert {reply.gateway for reply in to_retry} == {"h"}
    assert gateways(built, progress) == (["g", "h"] if stream else [])
    assert gateways(built, end) == ["g", "h"]


def test_a_gateway_where_two_calls_wait_is_told_once() -> None:
    built = session_after(started("a"), dispatched("a"))
    joined(built, "g")

    assert gateways(built, completed(ids(7))) == ["g"]


def test_all_who_wait_are_told_that_the_turn_failed() -> None:
    built = session_after(started("a"), dispatched("a"))
    joined(built, "h")
    cancelled = sessions.cancelled(at_ms=60)

    assert gateways(built, cancelled) == ["g", "h"]


def test_who_asked_for_token_ids_gets_the_prompt_where_the_answer_begins_and_with_its_end() -> None:
    asked = started("a", ids(1, 2), stream=True, wants_token_ids=True)
    built = session_after(asked, dispatched("a"))

    (first,) = replies_to(built, progressed(ids(7), delta=b"{}"))
    (more,) = replies_to(built, progressed(ids(8), token_offset=1, delta=b"{}"))
    (end,) = replies_to(built, completed(ids(9), token_offset=2))

    assert (first.prompt_ids, more.prompt_ids, end.prompt_ids) == (ids(1, 2), None, ids(1, 2))
    assert (first.token_ids, more.token_ids, end.token_ids) == (ids(7), ids(8), ids(7, 8, 9))
    assert {first.logprobs, more.logprobs, end.logprobs} == {None}


def test_the_prompt_of_a_later_turn_is_whole() -> None:
    built = session_after(started("a", ids(1, 2)), dispatched("a"), completed(ids(3)))
    later = started("b", ids(4), parent_turn="a", parent_node=1, parent_end=1, wants_token_ids=True)
    built.apply(later, dispatched("b"))

    (end,) = replies_to(built, completed(ids(5), "b", ids(1, 2, 3, 4)))

    assert (end.prompt_ids, end.token_ids) == (ids(1, 2, 3, 4), ids(5))


def test_who_asked_for_nothing_gets_no_tokens() -> None:
    built = session_after(started("a", stream=True), dispatched("a"))
    (piece,) = replies_to(built, progressed(ids(7), delta=b"{}"))
    assert (piece.prompt_ids, piece.token_ids) == (None, None)
