"""What follows from commands, deadlines and departures, without any I/O."""

from dataclasses import replace
from typing import Any

import pytest

from consumers.trajectories.decisions import deadlines, dispatch
from consumers.trajectories.decisions.context import Context
from consumers.trajectories.decisions.decide import decide
from consumers.trajectories.decisions.fleet import Departure, RolloutFleet
from consumers.trajectories.matching.prompt_renderer import Messages
from consumers.trajectories.sessions.addressing import Command
from schemas import records as r
from schemas.records import Record, Sampling
from schemas.topics import SESSIONS
from tests.builders.trajectories.story import (
    Story,
    closed,
    completed,
    dispatched,
    ids,
    message,
    opened,
    progressed,
    rewarded,
    started,
    told,
)


class OneTokenAMessage:
    """Renders a message as one token; enough for decisions, which do not look inside."""

    stop_token_ids = (0,)

    def encode(self, text: str) -> bytes:
        return ids(*text.encode())

    def decode(self, ids: bytes) -> str:
        return bytes(ids[::4]).decode()

    def render(self, messages: Messages, tools: Messages | None = None) -> bytes:
        return ids(*range(1, len(messages) + 1))

    def forced_call(
        self, prompt: bytes, messages: Messages, tools: Messages | None, name: str | None
    ) -> bytes:
        return ids(70, 71 if name else 72)

    def tail(self, prompt: bytes) -> bytes:
        return prompt

    def bridge(
        self, prompt: bytes, completion: bytes, new: Messages, tools: Messages | None = None
    ) -> bytes | None:
        return ids(*range(50, 50 + len(new)))


def a_fleet(*workers: str) -> RolloutFleet:
    fleet = RolloutFleet()
    fleet.apply(
        r.PolicyWeights(
            policy="p",
            version=4,
            step=4,
            directory="",
            manifest_sha256="",
            tokenizer_directory="",
            tokenizer_hash="t",
            renderer=b"{}",
            max_context=100,
            overrides=Sampling(temperature=1.0),
            at_ms=0,
        ),
        0,
    )
    for slot, worker in enumerate(workers):
        fleet.apply(acquired(worker, slot), 0)
    return fleet


def acquired(worker: str, slot: int, **more: Any) -> r.RoleAcquired:
    fields: dict[str, Any] = {
        "worker": worker,
        "incarnation": "i",
        "role": "rollout",
        "assignment": 1,
        "slot": slot,
        "slot_offset": 0,
        "version": 4,
        "took_ms": 0,
        "at_ms": 0,
        **more,
    }
    return r.RoleAcquired(**fields)


def context(fleet: RolloutFleet | None = None, now_ms: int = 100, **more: Any) -> Context:
    return Context(
        fleet or a_fleet("w"), lambda policy: OneTokenAMessage(), 5, 1, now_ms, 1_000, **more
    )


def fields(command_id: str) -> dict[str, Any]:
    return {
        "command_id": command_id,
        "session_id": "s",
        "issued_at_ms": 0,
        "expires_at_ms": 10_000,
        "reply": r.ReplyAddress(partition=1, gateway="g"),
    }


def open_session(**more: Any) -> r.OpenSession:
    return r.OpenSession(**{**fields("o"), "policy": "p", **more})


def request(turn_id: str = "a", **more: Any) -> r.RequestTurn:
    return r.RequestTurn(
        **{
            **fields(f"request-{turn_id}"),
            "turn_id": turn_id,
            "body_hash": b"body",
            "messages": (message("user", "x"),),
            "sampling": Sampling(max_tokens=8),
            "stream": False,
            "deadline_ms": 5_000,
            "tools": None,
            **more,
        }
    )


def turn_failed(turn_id: str) -> r.TurnFailed:
    return r.TurnFailed(
        session_id="s",
        turn_id=turn_id,
        epoch=1,
        dispatch=None,
        worker=None,
        incarnation=None,
        status=504,
        reason="deadline",
        detail="",
        cause="infrastructure",
        at_ms=5,
    )


def kinds(records: list[Record]) -> list[str]:
    return [type(record).__name__ for record in records]


def refusal(story: Story | None, command: Command, **more: Any) -> tuple[int, str]:
    decision = decide(story.known if story else None, command, context(**more))
    (event,) = decision.events
    assert isinstance(event, r.CommandRefused)
    assert not decision.prompts
    return event.status, event.reason


def test_a_request_starts_a_turn_and_gives_it_to_a_worker() -> None:
    decision = decide(told().known, request(), context())

    assert kinds(decision.events) == ["TurnStarted", "TurnDispatched"]
    ((slot, generate),) = decision.prompts
    assert isinstance(generate, r.GenerateTurn)
    assert (slot, generate.worker, generate.prompt_ids) == (0, "w", ids(1))


def test_a_request_nobody_can_take_is_started_all_the_same() -> None:
    decision = decide(told().known, request(), context(a_fleet()))

    assert kinds(decision.events) == ["TurnStarted"]


def test_the_policy_s_sampling_wins_and_the_rest_is_the_client_s() -> None:
    asked = Sampling(temperature=0.2, max_tokens=8, stop=("x",), one_tool_call=True)

    decision = decide(told().known, request(sampling=asked), context())

    event = decision.events[0]
    assert isinstance(event, r.TurnStarted)
    assert event.sampling_effective == replace(asked, temperature=1.0)
    assert event.behavior_exact


@pytest.mark.parametrize(
    ("bent", "reason"), [({"top_p": 0.9}, "top_p"), ({"logit_bias": {"1": 2.0}}, "logit_bias")]
)
def test_a_bent_distribution_is_recorded(bent: dict[str, Any], reason: str) -> None:
    decision = decide(told().known, request(sampling=Sampling(**bent)), context())

    event = decision.events[0]
    assert isinstance(event, r.TurnStarted)
    assert (event.behavior_exact, event.inexact_reason) == (False, reason)


@pytest.mark.parametrize(
    ("choice", "begun"), [("auto", ()), ("none", ()), ("required", (70, 72)), ("f", (70, 71))]
)
def test_a_tool_call_that_is_insisted_on_is_begun_in_the_prompt(
    choice: str, begun: tuple[int, ...]
) -> None:
    decision = decide(told().known, request(tool_choice=choice, tools=b"[]"), context())

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

    decision = decide(None, request(terms=terms), context())

    (event,) = decision.events
    assert isinstance(event, r.SessionOpened)
    assert (event.session_id, event.name, event.max_idle_ms) == ("s~request-a", "s", 7)
    assert decision.decide_again
    assert decide(told(closed()).known, request(terms=terms), context()).decide_again
    assert not decide(told().known, request(terms=terms), context()).decide_again


def test_a_request_begins_one_session_and_no_more() -> None:
    asked = request(terms=r.SessionTerms(policy="p"))

    assert refusal(told(closed()), asked, used={"s~request-a"}.__contains__) == (
        409,
        "session_closed",
    )


def test_events_of_a_named_session_carry_its_id() -> None:
    story = told(started("a"))
    story.known.opened = opened(session_id="s~1", name="s")

    decision = decide(story.known, request("b"), context())

    assert {event.session_id for event in decision.events} == {"s~1"}  # type: ignore[attr-defined]


def test_a_command_that_was_carried_out_does_nothing() -> None:
    story = told(started("a"), rewarded(command_id="r"), closed())

    assert decide(story.known, request("a"), context()).events == []
    assert decide(story.known, replace(open_session(), command_id="open"), context()).events == []


def test_what_cannot_be_done_is_refused_with_a_status() -> None:
    assert refusal(None, request()) == (404, "unknown_session")
    assert refusal(told(closed()), request()) == (409, "session_closed")
    assert refusal(told(), open_session()) == (409, "session_exists")
    assert refusal(None, open_session(), used=lambda _: True) == (409, "session_exists")
    assert refusal(None, open_session(policy="other")) == (503, "unknown_policy")
    assert refusal(told(), request(), now_ms=10_000) == (504, "expired")
    reward = r.AssignReward(**fields("x"), reward=r.Reward(value=1, scope="turn", turn_id="nope"))
    assert refusal(told(), reward) == (404, "unknown_turn")


def test_a_prompt_longer_than_the_context_is_refused() -> None:
    long = tuple(message("user", str(n)) for n in range(100))

    assert refusal(told(), request(messages=long)) == (400, "prompt_too_long")


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
    assert refusal(told(), request(**huge)) == (413, "request_too_large")


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
    story = told(started("a", body_hash=b"body", idempotency_key="k"), dispatched("a"))

    decision = decide(story.known, request("b", **retry), context())

    assert kinds(decision.events)[0] == ("TurnJoined" if joins else "TurnStarted")


def test_a_failed_turn_is_not_joined() -> None:
    story = told(started("a", idempotency_key="k"), turn_failed("a"))

    decision = decide(story.known, request("b", idempotency_key="k"), context())

    assert kinds(decision.events)[0] == "TurnStarted"


def test_a_retry_joins_the_latest_turn_of_its_key() -> None:
    story = told(started("a", idempotency_key="k"), turn_failed("a"))
    story.tell(started("b", idempotency_key="k", body_hash=b"body"))

    (event,) = decide(story.known, request("c", idempotency_key="k"), context()).events

    assert isinstance(event, r.TurnJoined)
    assert event.turn_id == "b"


def test_a_client_that_left_cancels_its_turn_unless_a_retry_waits_elsewhere() -> None:
    story = told(started("a"), dispatched("a"))
    left = r.CancelTurn(**fields("c"), turn_id="a", reason="client_gone")
    cancelled = decide(story.known, left, context())
    elsewhere = r.ReplyAddress(partition=2, gateway="h")
    story.tell(
        r.TurnJoined(session_id="s", epoch=1, at_ms=1, command_id="j", turn_id="a", reply=elsewhere)
    )

    assert kinds(cancelled.events) == ["TurnCancelled"]
    assert decide(story.known, left, context()).events == []
    assert decide(story.known, replace(left, reply=elsewhere), context()).events != []


def test_closing_finalizes_at_once_when_no_reward_is_missing() -> None:
    close = r.CloseSession(**fields("c"))

    assert kinds(decide(told().known, close, context()).events) == [
        "SessionClosed",
        "SessionFinalized",
    ]
    waiting = replace(close, await_reward_ms=500)
    assert kinds(decide(told().known, waiting, context()).events) == ["SessionClosed"]
    assert len(decide(told(rewarded()).known, waiting, context()).events) == 2


def test_the_last_reward_finalizes_a_closed_session() -> None:
    story = told(closed(await_reward_until_ms=9_000))
    reward = r.AssignReward(**fields("r"), reward=r.Reward(value=1))

    assert kinds(decide(story.known, reward, context()).events) == [
        "RewardAssigned",
        "SessionFinalized",
    ]


def test_a_reward_that_never_comes_does_not_hold_the_session_for_ever() -> None:
    story = told(closed(await_reward_until_ms=9_000))

    assert deadlines.due_ms(story.known) == 9_000
    assert deadlines.overdue(story.known, context(now_ms=8_999)).events == []
    assert kinds(deadlines.overdue(story.known, context(now_ms=9_000)).events) == [
        "SessionFinalized"
    ]


def test_a_turn_past_its_deadline_fails_and_its_worker_is_told() -> None:
    story = told(started(), dispatched())

    decision = deadlines.overdue(story.known, context(now_ms=60_000))

    assert kinds(decision.events) == ["TurnFailed"]
    assert kinds([prompt for _, prompt in decision.prompts]) == ["CancelGeneration"]


def test_a_turn_without_progress_goes_to_a_worker_again() -> None:
    story = told(started(), dispatched(), progressed(ids(7)))
    fleet = a_fleet("v")

    assert deadlines.due_ms(story.known) == 1_020
    decision = deadlines.overdue(story.known, context(fleet, now_ms=1_020))

    (event,) = decision.events
    assert isinstance(event, r.TurnDispatched)
    assert (event.dispatch, event.from_offset, event.worker) == (2, 1, "v")


def test_an_idle_session_is_closed_by_an_event() -> None:
    decision = deadlines.overdue(told().known, context(now_ms=100_000))

    assert kinds(decision.events) == ["SessionClosed", "SessionFinalized"]


def test_a_takeover_repeats_the_dispatch_that_may_have_been_lost() -> None:
    story = told(started(), dispatched(), progressed(ids(7)))

    ((slot, generate),) = dispatch.repeated(story.known, story.turn(), context())

    assert isinstance(generate, r.GenerateTurn)
    assert (slot, generate.dispatch, generate.completion_ids) == (0, 1, ids(7))


def test_the_next_turn_goes_to_the_worker_that_has_its_prefix() -> None:
    story = told(started(), dispatched(worker="v"), completed(ids(7), worker="v"))
    parent = replace(started("b"), parent_turn="a")

    decision = dispatch.first(story.known, parent, b"", context(a_fleet("u", "v")))

    (event,) = decision.events
    assert isinstance(event, r.TurnDispatched)
    assert event.worker == "v"


def test_a_worker_is_routed_to_from_acquiring_its_role_until_told_to_leave() -> None:
    fleet = a_fleet("w")
    assert fleet.choose("p", None, None) is not None

    leaving = r.RoleAssigned(
        epoch=0,
        at_ms=0,
        assignment=2,
        worker="w",
        incarnation="t",
        role="train",
        slot=None,
        reason="",
        deadline_ms=0,
    )
    fleet.apply(leaving, 0)
    assert fleet.choose("p", None, None) is None

    released = r.RoleReleased(
        worker="w", incarnation="i", role="rollout", assignment=2, free_bytes=0, took_ms=0, at_ms=0
    )
    assert fleet.apply(released, 0) == Departure("w", at_once=False)


def test_a_pinned_session_only_gets_workers_of_its_version() -> None:
    fleet = a_fleet("w")

    assert fleet.choose("p", None, 3) is None
    assert fleet.choose("p", None, 4) is not None


def test_a_decision_of_an_older_scheduler_is_ignored() -> None:
    fleet = a_fleet("w")
    fleet.apply(r.SchedulerClaimed(epoch=3, scheduler="new", at_ms=0), 0)
    lost = r.WorkerLost(
        epoch=2, at_ms=0, worker="w", incarnation="i", process="rollout", reason="no_heartbeat"
    )

    assert fleet.apply(lost, 0) is None
    assert fleet.routable("w", "i")
