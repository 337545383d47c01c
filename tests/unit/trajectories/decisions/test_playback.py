"""Recorded answers that are played back to an agent, until the chosen turn or a divergence."""

import pytest

from seamlessflow.recorded.fork.copying import RecordedOn, forked_prefix
from seamlessflow.schemas import records as r
from tests.builders.records.commands import close_session, request_turn
from tests.builders.records.content import ids, message
from tests.builders.trajectories.conversation import (
    ASKED,
    Conversation,
    calling,
    forked,
    result,
)
from tests.builders.trajectories.decisions import kinds
from tests.builders.trajectories.session_builder import finished


def played() -> Conversation:
    return forked(mode="playback")


def forked_of(made: Conversation, turn_id: str) -> Conversation:
    prefix = forked_prefix(made.session, turn_id, RecordedOn(5), mode="playback")
    return Conversation("fork", fork=prefix)


def second(made: Conversation) -> tuple[bytes, ...]:
    return (*ASKED, calling(made.copied(0)), result(made.copied(0)))


def third(made: Conversation) -> tuple[bytes, ...]:
    return (*second(made), calling(made.copied(1)), result(made.copied(1), "more"))


def test_recorded_prompts_get_recorded_answers_until_the_chosen_turn_is_sampled() -> None:
    made = played()
    events = [
        *made.ask("x", *ASKED),
        *made.ask("y", *second(made)),
        *made.ask("z", *third(made)),
    ]

    assert kinds(events) == ["TurnPlayedBack", "TurnPlayedBack", "TurnStarted", "TurnDispatched"]
    assert [event.turn_id for event in events[:2]] == [made.copied(0), made.copied(1)]  # type: ignore[attr-defined]
    assert isinstance(events[2], r.TurnStarted)
    assert events[2].suffix_ids == b""


def test_behind_the_chosen_turn_all_is_sampled() -> None:
    made = played()
    for turn_id, messages in [("x", ASKED), ("y", second(made)), ("z", third(made))]:
        made.ask(turn_id, *messages)
    made.answer("z", ids(50, 0), message("assistant", "better"))

    assert kinds(made.ask("again", *ASKED))[0] == "TurnStarted"
    assert finished(made).turns == 2


def test_a_retry_gets_the_same_answer() -> None:
    made = played()
    made.ask("x", *ASKED, idempotency_key="k")
    (by_key,) = made.ask("x2", *ASKED, idempotency_key="k")
    (by_count,) = made.ask("x3", *ASKED, retry_count=1)
    made.ask("y", *second(made))
    (late,) = made.ask("x4", *ASKED, idempotency_key="k")

    assert kinds([by_key, by_count, late]) == ["TurnJoined"] * 3
    assert {event.turn_id for event in (by_key, by_count, late)} == {made.copied(0)}  # type: ignore[attr-defined]


def test_a_repeated_prompt_gets_the_recorded_samples_in_their_order() -> None:
    made = Conversation("recorded")
    for turn_id, token in [("a", 10), ("b", 20)]:
        made.ask(turn_id, *ASKED)
        made.answer(turn_id, ids(token, 0), message("assistant", f"sample {turn_id}"))
    made.ask("c", *ASKED, message("assistant", "sample b"), message("user", "more"))
    fork = forked_of(made, "c")

    asked = [fork.ask(name, *ASKED)[0].turn_id for name in "xyz"]  # type: ignore[attr-defined]

    assert asked == [fork.copied(0), fork.copied(1), fork.copied(1)]


@pytest.mark.parametrize(
    ("asked", "detail"),
    [
        ((ASKED[0], message("user", "other")), "turn 1 of 3 (a): message 2 was"),
        ((*ASKED, message("user", "more")), "message 3 was"),
    ],
)
def test_the_first_other_request_ends_the_session_and_is_told(
    asked: tuple[bytes, ...], detail: str
) -> None:
    made = played()
    closed, refused, finalized = made.ask("x", *asked)

    assert isinstance(closed, r.SessionClosed)
    assert isinstance(refused, r.CommandRefused)
    assert isinstance(finalized, r.SessionFinalized)
    assert (closed.status, closed.reason, closed.cause) == (
        *("aborted", "fork_diverged"),
        "environment",
    )
    assert (refused.status, refused.reason) == (409, "fork_diverged")
    assert detail in refused.detail


def test_another_tool_result_is_named_with_its_turn() -> None:
    made = played()
    made.ask("x", *ASKED)
    first = made.copied(0)
    _, refused, _ = made.ask("y", *ASKED, calling(first), result(first, "other notes"))

    assert isinstance(refused, r.CommandRefused)
    assert "turn 2 of 3 (b): message 4 was" in refused.detail
    assert "other notes" in refused.detail


def test_other_tools_are_a_divergence_too() -> None:
    _, refused, _ = played().ask("x", *ASKED, tools=b"[]")

    assert isinstance(refused, r.CommandRefused)
    assert "the messages are equal" in refused.detail


@pytest.mark.parametrize(
    "close",
    [
        {"status": "complete"},
        {"status": "timeout", "cause": "policy"},
        {"status": "truncated", "cause": "policy"},
    ],
)
def test_a_session_that_ends_before_its_chosen_turn_is_no_sample(close: dict[str, str]) -> None:
    made = played()
    made.ask("x", *ASKED)
    closed = made.carry_out(close_session(session_id="fork", **close))[0]

    assert isinstance(closed, r.SessionClosed)
    assert (closed.status, closed.cause) == ("aborted", "environment")


def test_a_retry_of_a_playback_is_no_new_playback_after_a_take_over() -> None:
    made = played()
    command = request_turn("x", session_id="fork", messages=ASKED)

    assert kinds(made.carry_out(command)) == ["TurnPlayedBack"]
    assert made.carry_out(command) == []
