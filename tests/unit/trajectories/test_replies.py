"""What gateways are told."""

from consumers.trajectories import fold
from consumers.trajectories.replies import replies
from schemas import records as r
from tests.unit.trajectories.story import Story, completed, dispatched, ids, started, told


def joined(story: Story) -> list[r.Record]:
    """Replies to a retry that joins the turn now."""
    event = r.TurnJoined(
        session_id="s",
        epoch=1,
        at_ms=50,
        command_id="retry",
        turn_id="a",
        reply=r.ReplyAddress(partition=1, gateway="g"),
    )
    folded = fold.apply(story.known, event, story.offset, lambda _: "exact")
    return [reply for _, reply in replies(event, folded)]


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
    folded = fold.apply(story.known, event, story.offset, lambda _: "exact")

    ((_, reply),) = replies(event, folded)
    _, again = joined(story)

    for answer in (reply, again):
        assert isinstance(answer, r.ReplyFinished)
        assert (answer.finish_reason, answer.stop_sequence) == ("stop", "END")
        assert (answer.completion_tokens, answer.reasoning_tokens) == (2, 1)
