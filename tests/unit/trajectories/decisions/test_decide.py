"""What follows from commands, deadlines and departures, without any I/O."""

from dataclasses import replace
from typing import Any

import pytest

from consumers.trajectories.decisions import deadlines, dispatch
from consumers.trajectories.decisions.decide import decide
from consumers.trajectories.decisions.fleet import Departure
from consumers.trajectories.sessions.addressing import Command
from schemas import records as r
from schemas.records import Record, Sampling
from schemas.topics import SESSIONS
from tests.builders.records import control
from tests.builders.records.commands import (
    assign_reward,
    cancel_turn,
    close_session,
    open_session,
    request_turn,
)
from tests.builders.records.content import ids, message
from tests.builders.records.sessions import (
    closed,
    completed,
    dispatched,
    failed,
    joined,
    opened,
    progressed,
    rewarded,
    started,
)
from tests.builders.trajectories.decisions import context, fleet_with
from tests.builders.trajectories.session_builder import SessionBuilder, session_after


def kinds(records: list[Record]) -> list[str]:
    return [type(record).__name__ for record in records]


def refusal(built: SessionBuilder | None, command: Command, **more: Any) -> tuple[int, str]:
    decision = decide(built.session if built else None, command, context(**more))
    (event,) = decision.events
    assert isinstance(event, r.CommandRefused)
    assert not decision.prompts
    return event.status, event.reason


def test_a_request_starts_a_turn_and_gives_it_to_a_worker() -> None:
    decision = decide(session_after().session, request_turn(), context())

    assert kinds(decision.events) == ["TurnStarted", "TurnDispatched"]
    ((slot, generate),) = decision.prompts
    assert isinstance(generate, r.GenerateTurn)
    assert (slot, generate.worker, generate.prompt_ids) == (0, "w", ids(1))


def test_a_request_nobody_can_take_is_started_all_the_same() -> None:
    decision = decide(session_after().session, request_turn(), context(fleet_with()))

    assert kinds(decision.events) == ["TurnStarted"]


def test_the_policy_s_sampling_wins_and_the_rest_is_the_client_s() -> None:
    asked = Sampling(temperature=0.2, max_tokens=8, stop=("x",), one_tool_call=True)

    decision = decide(session_after().session, request_turn(sampling=asked), context())

    event = decision.events[0]
    assert isinstance(event, r.TurnStarted)
    assert event.sampling_effective == replace(asked, temperature=1.0)
    assert event.behavior_exact


@pytest.mark.parametrize(
    ("bent", "reason"), [({"top_p": 0.9}, "top_p"), ({"logit_bias": {"1": 2.0}}, "logit_bias")]
)
def test_a_bent_distribution_is_recorded(bent: dict[str, Any], reason: str) -> None:
    decision = decide(session_after().session, request_turn(sampling=Sampling(**bent)), context())

    event = decision.events[0]
    assert isinstance(event, r.TurnStarted)
    assert (event.behavior_exact, event.inexact_reason) == (False, reason)


@pytest.mark.parametrize(
    ("choice", "begun"), [("auto", ()), ("none", ()), ("required", (70, 72)), ("f", (70, 71))]
)
def test_a_tool_call_that_is_insisted_on_is_begun_in_the_prompt(
    choice: str, begun: tuple[int, ...]
) -> None:
    decision = decide(
        session_after().session, request_turn(tool_choice=choice, tools=b"[]"), context()
    )

    event, ((_, generate),) = decision.events[0], decision.prompts
    assert isinstance(event, r.TurnStarted) and isinstance(generate, r.GenerateTurn)
    assert event.suffix_ids == generate.prompt_ids == ids(1, *begun)
    assert (event.prompt_length, event.prefill, generate.prefill) == (
        1 + len(begun),
        len(begun),
        len(begun),
    )
    assert event.behavior_exact == (not begun)


def test_a_named_session_is_opened_first_and_the_request_decided_again() -> None:
    terms = r.SessionTerms(policy="p", max_idle_ms=7)

    decision = decide(None, request_turn(terms=terms), context())

    (event,) = decision.events
    assert isinstance(event, r.SessionOpened)
    assert (event.session_id, event.name, event.max_idle_ms) == ("s~request-a", "s", 7)
    assert decision.decide_again
    assert decide(
        session_after(closed()).session, request_turn(terms=terms), context()
    ).decide_again
    assert not decide(session_after().session, request_turn(terms=terms), context()).decide_again


def test_a_request_begins_one_session_and_no_more() -> None:
    asked = request_turn(terms=r.SessionTerms(policy="p"))

    assert refusal(session_after(closed()), asked, used={"s~request-a"}.__contains__) == (
        409,
        "session_closed",
    )


def test_events_of_a_named_session_carry_its_id() -> None:
    built = session_after(started("a"))
    built.session.opened = opened(session_id="s~1", name="s")

    decision = decide(built.session, request_turn("b"), context())

    assert {event.session_id for event in decision.events} == {"s~1"}  # type: ignore[attr-defined]


def test_a_command_that_was_carried_out_does_nothing() -> None:
    """Holds invariant I4."""
    built = session_after(started("a"), rewarded(command_id="r"), closed())

    assert decide(built.session, request_turn("a"), context()).events == []
    assert decide(built.session, open_session(command_id="open"), context()).events == []


def test_what_cannot_be_done_is_refused_with_a_status() -> None:
    assert refusal(None, request_turn()) == (404, "unknown_session")
    assert refusal(session_after(closed()), request_turn()) == (409, "session_closed")
    assert refusal(session_after(), open_session()) == (409, "session_exists")
    assert refusal(None, open_session(), used=lambda _: True) == (409, "session_exists")
    assert refusal(None, open_session(policy="other")) == (503, "unknown_policy")
    assert refusal(session_after(), request_turn(), now_ms=10_000) == (504, "expired")
    reward = assign_reward(r.Reward(value=1, scope="turn", turn_id="nope"))
    assert refusal(session_after(), reward) == (404, "unknown_turn")


def test_a_prompt_longer_than_the_context_is_refused() -> None:
    long = tuple(message("user", str(n)) for n in range(100))

    assert refusal(session_after(), request_turn(messages=long)) == (400, "prompt_too_long")


@pytest.mark.parametrize(
    "huge",
    [
        {"messages": (message("user", "x" * SESSIONS.max_record_bytes),)},
        {"sampling": Sampling(json_schema="ä" * (SESSIONS.max_record_bytes // 4))},
        {"sampling": Sampling(stop=("x" * (SESSIONS.max_record_bytes // 2),))},
        {"sampling": Sampling(logit_bias={str(n): 1.0 for n in range(300_000)})},
    ],
    ids=["messages", "json_schema", "stop", "logit_bias"],
)
def test_a_turn_too_large_for_the_log_is_refused(huge: dict[str, Any]) -> None:
    assert refusal(session_after(), request_turn(**huge)) == (413, "request_too_large")


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


def test_a_client_that_left_cancels_its_turn_unless_a_retry_waits_elsewhere() -> None:
    built = session_after(started("a"), dispatched("a"))
    left = cancel_turn()
    cancelled = decide(built.session, left, context())
    elsewhere = r.ReplyAddress(partition=2, gateway="h")
    built.apply(joined(reply=elsewhere))

    assert kinds(cancelled.events) == ["TurnCancelled"]
    assert decide(built.session, left, context()).events == []
    assert decide(built.session, replace(left, reply=elsewhere), context()).events != []


def test_closing_finalizes_at_once_when_no_reward_is_missing() -> None:
    close = close_session()

    assert kinds(decide(session_after().session, close, context()).events) == [
        "SessionClosed",
        "SessionFinalized",
    ]
    waiting = replace(close, await_reward_ms=500)
    assert kinds(decide(session_after().session, waiting, context()).events) == ["SessionClosed"]
    assert len(decide(session_after(rewarded()).session, waiting, context()).events) == 2


def test_the_last_reward_finalizes_a_closed_session() -> None:
    built = session_after(closed(await_reward_until_ms=9_000))
    reward = assign_reward(r.Reward(value=1))

    assert kinds(decide(built.session, reward, context()).events) == [
        "RewardAssigned",
        "SessionFinalized",
    ]


def test_a_reward_that_never_comes_does_not_hold_the_session_for_ever() -> None:
    """Holds invariant I8."""
    built = session_after(closed(await_reward_until_ms=9_000))

    assert deadlines.due_ms(built.session) == 9_000
    assert deadlines.overdue(built.session, context(now_ms=8_999)).events == []
    assert kinds(deadlines.overdue(built.session, context(now_ms=9_000)).events) == [
        "SessionFinalized"
    ]


def test_a_turn_past_its_deadline_fails_and_its_worker_is_told() -> None:
    """Holds invariant I8."""
    built = session_after(started(), dispatched())

    decision = deadlines.overdue(built.session, context(now_ms=60_000))

    assert kinds(decision.events) == ["TurnFailed"]
    assert kinds([prompt for _, prompt in decision.prompts]) == ["CancelGeneration"]


def test_a_turn_without_progress_goes_to_a_worker_again() -> None:
    built = session_after(started(), dispatched(), progressed(ids(7)))
    fleet = fleet_with("v")

    assert deadlines.due_ms(built.session) == 1_020
    decision = deadlines.overdue(built.session, context(fleet, now_ms=1_020))

    (event,) = decision.events
    assert isinstance(event, r.TurnDispatched)
    assert (event.dispatch, event.from_offset, event.worker) == (2, 1, "v")


def test_an_idle_session_is_closed_by_an_event() -> None:
    decision = deadlines.overdue(session_after().session, context(now_ms=100_000))

    assert kinds(decision.events) == ["SessionClosed", "SessionFinalized"]


def test_a_takeover_repeats_the_dispatch_that_may_have_been_lost() -> None:
    built = session_after(started(), dispatched(), progressed(ids(7)))

    ((slot, generate),) = dispatch.repeated(built.session, built.turn(), context())

    assert isinstance(generate, r.GenerateTurn)
    assert (slot, generate.dispatch, generate.completion_ids) == (0, 1, ids(7))


def test_the_next_turn_goes_to_the_worker_that_has_its_prefix() -> None:
    built = session_after(started(), dispatched(worker="v"), completed(ids(7), worker="v"))
    parent = replace(started("b"), parent_turn="a")

    decision = dispatch.first(built.session, parent, b"", context(fleet_with("u", "v")))

    (event,) = decision.events
    assert isinstance(event, r.TurnDispatched)
    assert event.worker == "v"


def test_a_worker_is_routed_to_from_acquiring_its_role_until_told_to_leave() -> None:
    fleet = fleet_with("w")
    assert fleet.choose("p", None, None) is not None

    leaving = control.assigned("w", "train", 2, epoch=0, incarnation="t")
    fleet.apply(leaving, 0)
    assert fleet.choose("p", None, None) is None

    released = control.released("w", assignment=2)
    assert fleet.apply(released, 0) == Departure("w", at_once=False)


def test_a_pinned_session_only_gets_workers_of_its_version() -> None:
    fleet = fleet_with("w")

    assert fleet.choose("p", None, 3) is None
    assert fleet.choose("p", None, 4) is not None


def test_a_decision_of_an_older_scheduler_is_ignored() -> None:
    fleet = fleet_with("w")
    fleet.apply(control.claimed(3), 0)
    lost = control.lost("w", epoch=2)

    assert fleet.apply(lost, 0) is None
    assert fleet.routable("w", "i")
