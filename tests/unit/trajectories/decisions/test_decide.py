"""Decisions of commands, without any I/O."""

from dataclasses import fields, replace
from typing import Any

import pytest

from seamlessflow.consumers.trajectories.decisions.decide import decide
from seamlessflow.consumers.trajectories.sessions.fold import FOLD_VERSION
from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Sampling
from seamlessflow.schemas.topics import SESSIONS, SessionCommand
from tests.builders.records.commands import (
    assign_reward,
    cancel_turn,
    close_session,
    open_session,
    request_turn,
)
from tests.builders.records.content import ids, message
from tests.builders.records.sampling import BENT_SAMPLING, PLAIN_SAMPLING
from tests.builders.records.sessions import (
    closed,
    completed,
    dispatched,
    joined,
    opened,
    rewarded,
    started,
)
from tests.builders.trajectories.decisions import WEIGHTS, context, fleet_with, kinds
from tests.builders.trajectories.session_builder import SessionBuilder, session_after


def refusal(built: SessionBuilder | None, command: SessionCommand, **more: Any) -> tuple[int, str]:
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
    ("overrides", "effective"),
    [
        (Sampling(temperature=0.0), Sampling(temperature=0.0, max_tokens=8)),
        (Sampling(top_k=3), Sampling(temperature=1.0, top_k=3, max_tokens=8)),
        (Sampling(top_p=1.0), Sampling(temperature=1.0, top_p=1.0, max_tokens=8)),
        (Sampling(), Sampling(temperature=1.0, max_tokens=8)),
        (None, Sampling(temperature=1.0, max_tokens=8)),
    ],
)
def test_the_sampling_of_a_session_wins_over_that_of_its_policy(
    overrides: Sampling | None, effective: Sampling
) -> None:
    session = SessionBuilder().apply(opened(purpose="eval", overrides=overrides)).session
    asked = Sampling(temperature=0.2, max_tokens=8)

    event = decide(session, request_turn(sampling=asked), context()).events[0]

    assert isinstance(event, r.TurnStarted)
    assert event.sampling_effective == effective
    assert event.sampling_requested == asked


@pytest.mark.parametrize(
    ("asked", "recorded", "reason"),
    [
        (None, 1.0, ""),
        (0.7, 0.7, ""),
        (2.0, 2.0, ""),
        (0.01, 0.01, ""),
        (0.001, 0.001, "greedy"),
        (0.0, 1.0, "greedy"),
    ],
)
def test_a_temperature_is_exact_and_recorded_with_the_log_probs(
    asked: float | None, recorded: float, reason: str
) -> None:
    fleet = fleet_with("w", weights=replace(WEIGHTS, overrides=Sampling()))
    request = request_turn(sampling=Sampling(temperature=asked))
    event = decide(session_after().session, request, context(fleet)).events[0]

    assert isinstance(event, r.TurnStarted)
    assert event.logprob_temperature == recorded
    assert (event.behavior_exact, event.inexact_reason) == (not reason, reason)


@pytest.mark.parametrize(
    ("bent", "trained"),
    [({"top_p": 0.9}, True), ({"top_k": 3}, True), ({"top_p": 0.9, "json_schema": "{}"}, False)],
)
def test_a_policy_that_trains_truncated_turns_trains_nothing_else_inexact(
    bent: dict[str, Any], trained: bool
) -> None:
    fleet = fleet_with("w", weights=replace(WEIGHTS, train_truncated=True))
    request = request_turn(sampling=Sampling(**bent))
    event = decide(session_after().session, request, context(fleet)).events[0]

    assert isinstance(event, r.TurnStarted)
    assert (event.behavior_exact, event.train_inexact) == (False, trained)


# The policy of these tests has a temperature of its own.
@pytest.mark.parametrize("parameter", sorted(BENT_SAMPLING.keys() - {"temperature"}))
def test_a_bent_distribution_is_recorded(parameter: str) -> None:
    bent = Sampling(**{parameter: BENT_SAMPLING[parameter]})
    event = decide(session_after().session, request_turn(sampling=bent), context()).events[0]

    assert isinstance(event, r.TurnStarted)
    assert (event.behavior_exact, event.inexact_reason) == (False, parameter)


def test_each_sampling_parameter_is_known_to_bend_the_distribution_or_not() -> None:
    parameters = {parameter.name for parameter in fields(Sampling)}
    assert parameters == {*BENT_SAMPLING, *PLAIN_SAMPLING}, "a name is missing in tests/builders"


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
    assert (event.behavior_exact, event.inexact_reason) == (True, "")


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


def test_a_client_that_left_cancels_its_turn_unless_a_retry_waits_elsewhere() -> None:
    built = session_after(started("a"), dispatched("a"))
    left = cancel_turn()
    cancelled = decide(built.session, left, context())
    elsewhere = r.ReplyAddress(partition=2, gateway="h")
    built.apply(joined(reply=elsewhere))

    assert kinds(cancelled.events) == ["TurnCancelled"]
    assert decide(built.session, left, context()).events == []
    assert decide(built.session, replace(left, reply=elsewhere), context()).events != []


def test_an_answer_whose_client_left_is_reported_unless_a_retry_waits_elsewhere() -> None:
    built = session_after(started("a"), dispatched("a"), completed(ids(7), "a"))
    left = cancel_turn(reply=started("a").reply)
    (event,) = decide(built.session, left, context()).events
    built.apply(joined(reply=r.ReplyAddress(partition=2, gateway="h")))

    assert isinstance(event, r.TurnUndelivered) and event.command_id == left.command_id
    assert decide(built.session, left, context()).events == []


@pytest.mark.parametrize(
    ("asked", "limit", "granted"),
    [(None, None, 99), (None, 9, 9), (5, 9, 5), (20, 9, 9), (5, None, 5), (500, None, 99)],
)
def test_the_least_limit_of_agent_policy_and_context_counts(
    asked: int | None, limit: int | None, granted: int
) -> None:
    weights = replace(WEIGHTS, max_context=100, overrides=Sampling(max_tokens=limit))
    request = request_turn(sampling=Sampling(max_tokens=asked))
    event = decide(session_after().session, request, context(fleet_with("w", weights=weights)))

    started = event.events[0]
    assert isinstance(started, r.TurnStarted)
    assert started.sampling_effective.max_tokens == granted


def test_what_a_policy_trains_and_its_context_are_recorded_with_the_turn() -> None:
    weights = replace(WEIGHTS, siblings="all", train_undelivered=True, max_context=77)
    (event, *_) = decide(
        session_after().session, request_turn(), context(fleet_with("w", weights=weights))
    ).events

    assert isinstance(event, r.TurnStarted)
    assert (event.siblings, event.train_undelivered, event.max_context) == ("all", True, 77)


def test_a_session_is_opened_with_the_present_rules() -> None:
    (event,) = decide(None, open_session(), context()).events

    assert isinstance(event, r.SessionOpened)
    assert event.fold_version == FOLD_VERSION


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


def test_a_request_behind_a_response_brings_a_result_for_each_of_its_calls() -> None:
    function = {"name": "f", "arguments": "{}"}
    calls = [{"id": f"call_a_{n}", "type": "function", "function": function} for n in range(2)]
    answer = message("assistant", None, tool_calls=calls)
    built = session_after(started("a"), dispatched(), completed(ids(3), message=answer))

    def asked(*answered: str) -> r.RequestTurn:
        results = tuple(message("tool", "42", tool_call_id=call_id) for call_id in answered)
        return request_turn("b", messages=results, previous_turn="a")

    assert refusal(built, asked("call_a_1")) == (400, "bad_request")
    decision = decide(built.session, asked("call_a_0", "call_a_1"), context())
    assert isinstance(decision.events[0], r.TurnStarted)
