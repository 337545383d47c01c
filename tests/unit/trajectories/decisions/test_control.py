"""Turns under a rule that may end them: who has one, and how it goes from worker to worker."""

from dataclasses import replace
from typing import Any

import pytest

from seamlessflow.consumers.trajectories.decisions import deadlines, dispatch
from seamlessflow.consumers.trajectories.decisions.context import Context, ControlTerms
from seamlessflow.consumers.trajectories.decisions.decide import decide
from seamlessflow.consumers.trajectories.decisions.training import SessionFates
from seamlessflow.consumers.trajectories.sessions.assemble import trajectory
from seamlessflow.consumers.trajectories.sessions.session_state import session_of, state_of
from seamlessflow.producers.rollout.turns.refusal import unstarted
from seamlessflow.schemas import records as r
from seamlessflow.trainer.data.credit.returns import session_return
from tests.builders.records.commands import assign_reward, close_session, request_turn
from tests.builders.records.content import ids
from tests.builders.records.sessions import (
    completed,
    dispatched,
    interrupted,
    opened,
    progressed,
    started,
)
from tests.builders.trajectories.conversation import ASKED, forked
from tests.builders.trajectories.decisions import context, fleet_with, kinds
from tests.builders.trajectories.session_builder import SessionBuilder, finished, session_after

RULE = r.TurnControl(name="repetition", settings=b'{"period":8}', reward=0.0)


def under(exempt: float = 0.0) -> Context:
    return context(fleet_with("v"), control=ControlTerms(RULE, exempt))


def begun(session_id: str = "s", exempt: float = 0.0, purpose: str = "train") -> r.GenerateTurn:
    """Return the first dispatch of a session's turn; its `TurnStarted` names the same rule."""
    built = SessionBuilder().apply(opened(session_id=session_id, purpose=purpose))
    decision = decide(built.session, request_turn(session_id=session_id), under(exempt))
    (event, _), ((_, generate),) = decision.events, decision.prompts
    assert isinstance(event, r.TurnStarted)
    assert isinstance(generate, r.GenerateTurn)
    assert event.control == generate.control
    return generate


def test_a_turn_brings_its_rule_to_the_worker_and_the_log_names_it() -> None:
    generate = begun()
    assert (generate.control, generate.control_state) == (RULE, None)


def test_turns_of_a_policy_that_is_not_trained_have_no_rule_and_say_so() -> None:
    terms = under()
    terms.fleet.policies["p"] = replace(terms.fleet.policies["p"], frozen=True)
    (event, _) = decide(session_after().session, request_turn(), terms).events
    assert isinstance(event, r.TurnStarted)
    assert event.frozen
    assert event.control is None


def test_likeliest_tokens_are_recorded_for_training_unless_the_agent_asks_for_its_own() -> None:
    recorded = context(fleet_with("v"), control=ControlTerms(record_top=20))
    session = session_after().session
    tops = []
    for wants in (False, True):
        (event, _) = decide(session, request_turn(wants_logprobs=wants), recorded).events
        assert isinstance(event, r.TurnStarted)
        assert event.sampling_requested.top_logprobs == 0
        tops.append(event.sampling_effective.top_logprobs)
    assert tops == [20, 0]


def test_each_choice_of_a_request_is_a_turn_under_the_rule() -> None:
    session = session_after().session
    turns = [
        decide(session, request_turn(name, choice=choice), under()).events[0]
        for choice, name in enumerate("ab")
    ]
    assert [(turn.choice, turn.control) for turn in turns if isinstance(turn, r.TurnStarted)] == [
        (0, RULE),
        (1, RULE),
    ]


def test_an_answer_that_is_played_back_has_no_rule() -> None:
    session = forked(mode="playback").session
    command = request_turn("x", session_id=session.session_id, messages=ASKED)
    assert kinds(decide(session, command, under()).events) == ["TurnPlayedBack"]


def test_an_evaluation_is_never_cut_short() -> None:
    assert begun(purpose="eval").control is None


def test_the_exempt_sessions_follow_from_their_ids() -> None:
    names = [f"session-{number}" for number in range(2_000)]
    exempt = [name for name in names if _exempt(name, 0.25)]
    assert 420 < len(exempt) < 580
    assert exempt == [name for name in names if _exempt(name, 0.25)]
    assert {name for name in names if _exempt(name, 0.1)} < set(exempt)
    assert not any(_exempt(name, 0.0) for name in names)
    assert all(_exempt(name, 1.0) for name in names)


def test_a_turn_that_moves_takes_the_state_behind_its_last_token_along() -> None:
    built = session_after(started(control=RULE), dispatched())
    built.apply(progressed(ids(7), control_state=b"[1]"))
    assert _next(built).control_state == b"[1]"
    built.apply(interrupted(ids(8), token_offset=1, control_state=b"[2]"))
    generate = _next(built)
    assert (generate.control, generate.control_state) == (RULE, b"[2]")
    assert generate.completion_ids == ids(7, 8)


def test_a_turn_that_a_worker_hands_back_without_beginning_it_keeps_its_state() -> None:
    built = session_after(started(control=RULE), dispatched())
    built.apply(interrupted(ids(7), control_state=b"[1]"))
    moved = _next(built)
    place = {"worker": moved.worker, "incarnation": moved.incarnation}
    built.apply(dispatched(dispatch=moved.dispatch, from_offset=1, **place))
    built.apply(unstarted(moved, "preempted", 1))
    assert built.turn().worker is None, "it was handed back"
    assert _next(built).control_state == b"[1]"


def test_output_that_does_not_count_brings_no_state() -> None:
    built = session_after(started(control=RULE), dispatched())
    built.apply(progressed(ids(7), control_state=b"[1]"))
    built.apply(progressed(ids(9), token_offset=0, control_state=b"[9]"))
    built.apply(progressed(ids(9), token_offset=1, dispatch=2, control_state=b"[9]"))
    assert _next(built).control_state == b"[1]"


def test_a_takeover_repeats_the_dispatch_with_its_state() -> None:
    built = session_after(started(control=RULE), dispatched())
    built.apply(progressed(ids(7), control_state=b"[1]"))
    ((_, generate),) = dispatch.repeated(built.session, built.turn(), context())
    assert isinstance(generate, r.GenerateTurn)
    assert generate.control_state == b"[1]"


def test_a_turn_that_a_rule_ended_is_trained_and_its_node_has_the_verdict() -> None:
    built = session_after(started(control=RULE), dispatched(), _stopped(ids(7, 8), at=2))
    assert built.session.limit == "control"
    node = finished(built).nodes[1]
    assert (node.control, node.control_at, node.masked_reason) == ("repetition: repeats", 2, "")
    assert node.finish_reason == "length"


def test_the_verdict_on_an_exempt_turn_ends_nothing() -> None:
    rule = replace(RULE, exempt=True)
    built = session_after(started(control=rule), dispatched(), _stopped(ids(7, 8, 9), at=2))
    assert built.session.limit == "max_tokens"
    node = finished(built).nodes[1]
    assert (node.control_at, node.length) == (2, 3)


def test_a_spilled_session_keeps_its_verdicts() -> None:
    built = session_after(started(control=RULE), dispatched())
    built.apply(progressed(ids(7), control_state=b"[1]"))
    built.apply(_stopped(ids(8), at=2, token_offset=1))
    assert session_of(state_of(built.session)) == built.session


def over(reward: float | None = 0.0, exempt: bool = False) -> SessionBuilder:
    """Return a session whose turn a rule ended, and with it the session."""
    rule = replace(RULE, reward=reward, exempt=exempt)
    last = replace(_stopped(ids(7), at=1), control_ends="session")
    return session_after(started(control=rule), dispatched(), last)


@pytest.mark.parametrize("reward", [0.0, -1.0])
def test_a_session_that_a_rule_ended_is_pruned_with_its_reason_and_counts(reward: float) -> None:
    built = over(reward)
    assert deadlines.due_ms(built.session) == built.session.last_activity_ms
    decision = deadlines.overdue(built.session, context())
    assert kinds(decision.events) == ["RewardAssigned", "SessionClosed", "SessionFinalized"]
    built.apply(*decision.events)
    assert built.accepted[-3:] == [True] * 3
    made = trajectory(built.session, 5)
    ending = (made.status, made.cause, made.reason, made.limit)
    assert ending == ("pruned", "policy", "repetition: repeats", "control")
    assert session_return(made) == reward


def test_without_a_reward_it_leaves_its_group_and_is_not_tried_again() -> None:
    built = over(reward=None)
    decision = deadlines.overdue(built.session, context())
    assert kinds(decision.events) == ["SessionClosed", "SessionFinalized"]
    made = trajectory(built.apply(*decision.events).session, 5)
    assert (made.status, made.cause, session_return(made)) == ("pruned", "setting", None)


def test_what_its_agent_says_of_the_end_changes_nothing() -> None:
    built = over()
    command = close_session(status="aborted", reason="KeyError", cause="environment")
    decision = decide(built.session, command, context())
    built.apply(*decision.events)
    assert deadlines.due_ms(built.session) is None
    made = trajectory(built.session, 5)
    assert (made.status, made.cause, made.reason) == ("pruned", "policy", "repetition: repeats")


def test_a_request_behind_the_verdict_is_refused_with_the_reason() -> None:
    decision = decide(over().session, request_turn("b"), under())
    (event,) = decision.events
    assert isinstance(event, r.CommandRefused)
    refused = (event.status, event.reason, event.detail)
    assert refused == (409, "session_closed", "repetition: repeats")


def test_a_request_behind_its_end_is_refused_with_the_reason_too() -> None:
    built = over()
    built.apply(*deadlines.overdue(built.session, context()).events)
    fates = SessionFates()
    fates.note_finalized(built.session.opened, built.session.closed, at_ms=9)
    surroundings = context(used=lambda session_id: True, fates=fates)
    (event,) = decide(None, request_turn("b"), surroundings).events
    assert isinstance(event, r.CommandRefused)
    assert event.detail == "the session is finalized: repetition: repeats"
    (late,) = decide(None, assign_reward(), surroundings).events
    (early,) = decide(built.session, assign_reward(), context()).events
    for refused in (late, early):
        assert isinstance(refused, r.CommandRefused)
        assert (refused.status, refused.reason, refused.detail) == (
            409,
            "session_pruned",
            event.detail,
        )


def test_an_exempt_session_goes_on() -> None:
    built = over(exempt=True)
    assert deadlines.due_ms(built.session) != built.session.last_activity_ms
    (event, *_) = decide(built.session, request_turn("b"), under()).events
    assert isinstance(event, r.TurnStarted)
    node = finished(built).nodes[1]
    assert (node.control, node.control_exempt) == ("repetition: repeats", True)


def test_a_session_that_a_rule_ended_is_the_same_after_it_was_spilled() -> None:
    session = over().session
    assert session_of(state_of(session)) == session


def _exempt(session_id: str, share: float) -> bool:
    rule = begun(session_id, share).control
    assert rule is not None
    return rule.exempt


def _next(built: SessionBuilder) -> r.GenerateTurn:
    decision = dispatch.again(built.session, built.turn(), "interrupted", under())
    ((_, generate),) = decision.prompts
    assert isinstance(generate, r.GenerateTurn)
    return generate


def _stopped(tokens: bytes, at: int, **more: Any) -> r.TurnCompleted:
    record = completed(tokens, finish_reason="length", control="repetition: repeats", **more)
    return replace(record, control_at=at, control_ends="turn")
