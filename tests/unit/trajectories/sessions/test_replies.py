"""What gateways are told."""

from typing import Any

import pytest

from consumers.trajectories.sessions import fold
from consumers.trajectories.sessions.replies import replies
from schemas import records as r
from tests.builders.trajectories.story import (
    Story,
    completed,
    dispatched,
    ids,
    progressed,
    started,
    told,
)


def joined(story: Story, gateway: str = "g") -> list[Any]:
    """Replies to a retry that joins the turn now."""
    event = r.TurnJoined(
        session_id="s",
        epoch=1,
        at_ms=50,
        command_id="retry",
        turn_id="a",
        reply=r.ReplyAddress(partition=1, gateway=gateway),
    )
    return told_of(story, event)


def told_of(story: Story, event: r.Record) -> list[Any]:
    """Replies that follow from an event."""
    folded = fold.apply(story.known, event, story.offset, lambda _: "exact")
    return [reply for _, reply in replies(event, folded)]


def gateways(story: Story, event: r.Record) -> list[str]:
    """Who is told of an event."""
    return [reply.gateway for reply in told_of(story, event)]


def test_a_retry_that_joined_a_turn_which_ended_meanwhile_is_told_so() -> None:
    cancelled = r.TurnCancelled(session_id="s", epoch=1, at_ms=40, turn_id="a", reason="gone")

    (reply,) = joined(told(started("a"), dispatched("a"), cancelled))

    assert isinstance(reply, r.CommandAnswered)
    assert (reply.command_id, reply.status, reply.reason) == ("retry", 503, "turn_ended")


def test_a_retry_that_joined_a_turn_under_way_waits_for_it() -> None:
    (reply,) = joined(told(started("a"), dispatched("a")))

    assert isinstance(reply, r.CommandAnswered)
    assert (reply.turn_id, reply.status) == ("a", 200)


def test_an_answer_says_what_ended_it_to_whoever_waits_for_it() -> None:
    story = told(started("a"), dispatched("a"))
    event = completed(ids(3, 4), stop_sequence="END", reasoning_tokens=1)

    (reply,) = told_of(story, event)
    _, again = joined(story)

    for answer in (reply, again):
        assert isinstance(answer, r.ReplyFinished)
        assert (answer.finish_reason, answer.stop_sequence) == ("stop", "END")
        assert (answer.completion_tokens, answer.reasoning_tokens) == (2, 1)


@pytest.mark.parametrize("stream", [False, True])
def test_whoever_asked_first_gets_the_answer_as_well_as_a_retry_elsewhere(stream: bool) -> None:
    story = told(started("a", stream=stream), dispatched("a"))
    to_retry = joined(story, "h")
    progress = progressed(ids(7), delta=b"{}")
    end = completed(ids(8), token_offset=1)

    assert {reply.gateway for reply in to_retry} == {"h"}
    assert gateways(story, progress) == (["g", "h"] if stream else [])
    assert gateways(story, end) == ["g", "h"]


def test_a_gateway_where_two_calls_wait_is_told_once() -> None:
    story = told(started("a"), dispatched("a"))
    joined(story, "g")

    assert gateways(story, completed(ids(7))) == ["g"]


def test_all_who_wait_are_told_that_the_turn_failed() -> None:
    story = told(started("a"), dispatched("a"))
    joined(story, "h")
    cancelled = r.TurnCancelled(session_id="s", epoch=1, at_ms=60, turn_id="a", reason="gone")

    assert gateways(story, cancelled) == ["g", "h"]
