"""Answers to questions: tokens of a prompt that no turn is started for, and states of sessions."""

from dataclasses import replace
from typing import Any

import orjson
import pytest

from seamlessflow.consumers.trajectories.decisions.questions import count, describe
from seamlessflow.consumers.trajectories.decisions.training import SessionFates
from seamlessflow.consumers.trajectories.sessions.session import Session
from seamlessflow.schemas import records as r
from seamlessflow.schemas.codec import decode
from tests.builders.records import control
from tests.builders.records.commands import count_tokens, describe_session
from tests.builders.records.content import ids
from tests.builders.records.sessions import (
    closed,
    completed,
    dispatched,
    opened,
    progressed,
    rewarded,
    started,
)
from tests.builders.trajectories.decisions import context
from tests.builders.trajectories.session_builder import session_after

TERMS = r.SessionTerms(policy="p", max_age_ms=1, max_idle_ms=1)


def asked(session: Session | None, used: bool = False, **more: Any) -> r.CommandAnswered:
    command = count_tokens(**more)
    return count(session, command, context(used=lambda session_id: used))


def described(session: Session | None, fates: SessionFates | None = None) -> dict[str, Any]:
    situation = context(used=lambda session_id: session_id == "s", fates=fates or SessionFates())
    answer = describe(session, describe_session("s"), situation)
    assert answer.status == 200 and answer.state is not None
    state: dict[str, Any] = orjson.loads(answer.state)
    return state


def fate(*records: Any, session: str = "s") -> dict[str, Any]:
    """Return what is known of the training of a finalized session behind these records."""
    fates = SessionFates()
    fates.note_finalized(opened(session_id="s", group_id="g"), closed(), at_ms=9)
    for record in records:
        fates.apply(record)
    training: dict[str, Any] = described(None, fates)["training"]
    return training


def test_an_open_session_is_counted_for() -> None:
    assert asked(session_after(opened()).session).tokens == 1


def test_a_session_that_nobody_opened_is_not_known() -> None:
    answer = asked(None)
    assert (answer.status, answer.reason) == (404, "unknown_session")


@pytest.mark.parametrize(
    ("session", "used"), [(session_after(opened(), closed()).session, True), (None, True)]
)
def test_a_closed_session_is_refused_as_for_a_turn(session: Session | None, used: bool) -> None:
    answer = asked(session, used)
    assert (answer.status, answer.reason) == (409, "session_closed")


def test_where_the_next_request_would_begin_a_session_it_is_counted_for() -> None:
    assert asked(None, terms=TERMS).tokens == 1
    assert asked(session_after(opened(), closed()).session, terms=TERMS).tokens == 1


def test_a_policy_without_weights_is_named() -> None:
    terms = r.SessionTerms(policy="other", max_age_ms=1, max_idle_ms=1)
    answer = asked(None, terms=terms)
    assert (answer.status, answer.reason) == (503, "unknown_policy")
    assert "'other'" in answer.detail


def test_an_open_session_tells_its_turns_and_rewards() -> None:
    state = described(session_after(opened(), started("a"), rewarded(0.5)).session)

    assert (state["status"], state["turns"], state["turns_under_way"]) == ("open", 1, 1)
    assert state["rewards"] == [{"name": "reward", "value": 0.5, "turn": None}]
    assert state["group_id"] == "s", "a session without a group is one of its own"


def test_a_closed_session_tells_the_rewards_that_it_waits_for() -> None:
    ended = closed(await_rewards=("reward", "style"), await_reward_until_ms=90)
    state = described(session_after(opened(), rewarded(1.0, final=False), ended).session)

    assert state["status"] == "closed"
    assert (state["awaits_rewards"], state["awaits_rewards_until_ms"]) == (["style"], 90)


def test_a_session_that_never_was_is_unknown() -> None:
    answer = describe(None, describe_session("other"), context())

    assert (answer.status, answer.reason, answer.state) == (404, "unknown_session", None)


def test_a_finalized_session_of_an_earlier_manager_is_called_so() -> None:
    assert described(None) == {"session_id": "s", "status": "finalized"}


def test_the_training_of_a_finalized_session_follows_from_control() -> None:
    in_step = r.StepGroup(group_id="g", sessions=("s",))
    without = r.StepGroup(group_id="g", sessions=("t",))
    stale = control.dropped("g", "stale", detail="9 of 9 tokens are older than 1 steps")

    assert fate()["state"] == "waiting"
    assert fate(control.ready("g"))["state"] == "ready"
    assert fate(control.ready("g"), control.committed(3, [in_step])) == {
        "state": "trained",
        "step": 4,
    }
    assert fate(control.committed(3, [without]))["state"] == "masked"
    assert fate(control.ready("g"), stale) == {
        "state": "dropped",
        "detail": "stale: 9 of 9 tokens are older than 1 steps",
    }
    assert fate(control.dropped("another"))["state"] == "waiting"


def test_a_session_of_a_step_is_trained_only_with_a_token_in_the_loss() -> None:
    group = r.StepGroup(group_id="g", sessions=("s", "t"))
    filtered = replace(group, filtered="zero_variance")
    methods = (r.StepMethod(kind="advantage", name="grpo"),)

    def in_step(step_group: r.StepGroup, **tokens: int) -> dict[str, Any]:
        return fate(control.committed(3, [step_group], trained_tokens=tokens, methods=methods))

    assert in_step(group, s=5, t=5) == {"state": "trained", "step": 4}
    assert in_step(group, t=5)["state"] == in_step(group)["state"] == "masked"
    assert in_step(filtered) == {
        "state": "filtered",
        "step": 4,
        "detail": "the filter zero_variance kept its group out of the loss",
    }
    assert in_step(filtered, s=5, t=5) == {
        "state": "trained",
        "step": 4,
        "detail": "without advantages, by the filter zero_variance",
    }


def test_a_session_that_does_not_count_says_why() -> None:
    failed = control.sample_failed("g", 0, 0, detail="no reward")

    assert fate(failed) == {"state": "not_counted", "detail": "environment: no reward"}


def test_the_oldest_fates_are_forgotten() -> None:
    fates = SessionFates()
    for number in range(10_001):
        fates.note_finalized(opened(session_id=f"s{number}"), None, at_ms=9)

    assert (fates.describe("s0"), fates.describe("s1")["group_id"]) == ({}, "s1")


def standing(*events: r.Record) -> r.Trajectory:
    """Return the trajectory, as the answer to a question has it."""
    session = session_after(*events).session
    before = session_after(*events).session
    answer = describe(session, describe_session("s", wants_trajectory=True), context())
    assert answer.trajectory is not None
    assert session == before
    made = decode(answer.trajectory)
    assert isinstance(made, r.Trajectory)
    return made


def test_an_open_session_shows_its_trajectory_as_it_stands() -> None:
    made = standing(started("a", ids(1, 2)), dispatched("a"), completed(ids(3, 4)))
    assert (made.status, made.tokens, made.loss_mask) == ("open", ids(1, 2, 3, 4), b"\0\0\1\1")


def test_a_turn_under_way_is_masked_in_it() -> None:
    made = standing(started("a", ids(1, 2)), dispatched("a"), progressed(ids(3)))
    assert (made.tokens, made.loss_mask) == (ids(1, 2, 3), bytes(3))
    assert dict(made.masked_tokens) == {"running": 1}


def test_a_closed_session_that_awaits_a_reward_shows_its_trajectory() -> None:
    turn = (started("a", ids(1, 2)), dispatched("a"), completed(ids(3)))
    made = standing(*turn, rewarded(2.0), closed())
    assert (made.status, [reward.value for reward in made.rewards]) == ("complete", [2.0])


def test_who_asks_for_the_state_alone_gets_no_tokens() -> None:
    assert describe(session_after().session, describe_session("s"), context()).trajectory is None
