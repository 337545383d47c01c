"""Sessions that wait for judges of the run, however those answer, and what becomes of them."""

from typing import Any

import pytest

from seamlessflow.consumers.trajectories.decisions import deadlines
from seamlessflow.consumers.trajectories.decisions.context import JudgeTerms
from seamlessflow.consumers.trajectories.decisions.decide import decide
from seamlessflow.consumers.trajectories.sessions.assemble import trajectory
from seamlessflow.consumers.trajectories.sessions.session_state import session_of, state_of
from seamlessflow.schemas import records as r
from tests.builders.records.commands import assign_reward, close_session
from tests.builders.records.content import ids
from tests.builders.records.sessions import completed, dispatched, opened, rewarded, started
from tests.builders.trajectories.decisions import context, kinds
from tests.builders.trajectories.session_builder import SessionBuilder, session_after

TERMS = JudgeTerms(("brief", "kind"), 5_000)
NOW_MS = 100


def judged(name: str, value: float = 1.0, failure: str = "") -> r.AssignReward:
    reward = r.Reward(name=name, value=value, source="judge")
    return assign_reward(reward, command_id=f"s.judge.{name}", failure=failure, final=False)


def closing(**asked: Any) -> tuple[SessionBuilder, r.SessionClosed]:
    """Return a session that was closed so, in a run with two judges, and its end."""
    built = session_after()
    decision = decide(built.session, close_session(**asked), context(judges=TERMS))
    event = decision.events[0]
    assert isinstance(event, r.SessionClosed)
    built.apply(*decision.events)
    return built, event


def answer(built: SessionBuilder, command: r.AssignReward) -> list[str]:
    decision = decide(built.session, command, context(judges=TERMS))
    built.apply(*decision.events)
    return kinds(decision.events)


def test_a_session_waits_for_the_judges_of_its_run_and_ends_with_the_last_of_them() -> None:
    built, end = closing()

    assert (end.judges, end.await_rewards) == (TERMS.names, TERMS.names)
    assert end.await_reward_until_ms == NOW_MS + TERMS.wait_ms
    assert answer(built, judged("kind")) == ["RewardAssigned"]
    assert answer(built, judged("brief")) == ["RewardAssigned", "SessionFinalized"]
    made = trajectory(built.session, 0)
    assert (made.status, made.cause) == ("complete", "policy")
    assert {reward.name for reward in made.rewards} == {"brief", "kind"}


def test_a_judge_and_a_person_are_both_waited_for() -> None:
    _, end = closing(await_reward_ms=9_000, await_rewards=("human",))
    assert end.await_rewards == ("human", "brief", "kind")
    assert end.await_reward_until_ms == NOW_MS + 9_000
    _, unnamed = closing(await_reward_ms=1_000)
    assert unnamed.await_rewards == ("reward", "brief", "kind")


@pytest.mark.parametrize(
    "asked",
    [
        {"status": "aborted", "cause": "environment"},
        {"status": "timeout"},
        {"status": "unrewarded", "cause": "environment"},
        {"status": "pruned", "cause": "setting"},
    ],
)
def test_what_no_agent_finished_is_not_judged(asked: dict[str, Any]) -> None:
    _, end = closing(**asked)
    assert (end.judges, end.await_rewards, end.await_reward_until_ms) == ((), (), NOW_MS)


def test_the_session_of_a_judge_is_not_judged() -> None:
    built = SessionBuilder().apply(opened(purpose="judge"))
    decision = decide(built.session, close_session(), context(judges=TERMS))
    end = decision.events[0]
    assert isinstance(end, r.SessionClosed) and end.judges == ()
    assert kinds(decision.events) == ["SessionClosed", "SessionFinalized"]
    built.apply(*decision.events)
    assert trajectory(built.session, 0).status == "complete", "it needs no reward"


def test_rewards_of_turns_end_no_session_and_count_once() -> None:
    built = session_after(started(), dispatched(), completed(ids(7, 8)))
    decision = decide(built.session, close_session(), context(judges=TERMS))
    built.apply(*decision.events)
    answer(built, judged("brief"))
    turn = next(iter(built.session.turns))
    for value in (1.0, 0.0):
        reward = r.Reward(name="kind", value=value, scope="turn", turn_id=turn, source="judge")
        command = assign_reward(reward, command_id=f"s.judge.kind.{turn}", final=False)
        assert answer(built, command) == (["RewardAssigned"] if value else [])
    assert built.session.lacking_judges == ["kind"]
    assert answer(built, judged("kind")) == ["RewardAssigned", "SessionFinalized"]
    made = trajectory(built.session, 0)
    assert [reward.value for reward in made.rewards if reward.turn_id == turn] == [1.0]


def test_the_same_judgement_counts_once_however_often_it_comes_and_whatever_it_says() -> None:
    built, _ = closing()
    assert answer(built, judged("kind", 1.0)) == ["RewardAssigned"]
    assert answer(built, judged("kind", 0.0)) == []
    assert answer(built, judged("kind", failure="away")) == []
    assert [reward.value for reward in built.session.rewards.values()] == [1.0]


def test_a_judge_that_gives_up_ends_its_session_at_once_for_its_own_reason() -> None:
    built, _ = closing()
    assert answer(built, judged("kind", failure="prose")) == ["RewardAssigned", "SessionFinalized"]
    made = trajectory(built.session, 0)
    assert (made.status, made.cause) == ("unrewarded", "judge")
    assert made.reason == "judge brief: no reward in time; kind: prose"
    assert made.rewards == ()


def test_a_judge_that_does_not_answer_is_waited_for_until_the_deadline() -> None:
    built, end = closing()
    answer(built, judged("brief"))
    due_ms = end.await_reward_until_ms

    assert deadlines.due_ms(built.session) == due_ms
    assert not deadlines.overdue(built.session, context(now_ms=due_ms - 1)).events
    (event,) = deadlines.overdue(built.session, context(now_ms=due_ms)).events
    assert isinstance(event, r.SessionFinalized) and event.reason == "judge_failed"
    built.apply(event)
    made = trajectory(built.session, 0)
    assert (made.cause, made.reason) == ("judge", "judge kind: no reward in time")


def test_a_reward_behind_the_deadline_is_refused_and_changes_nothing() -> None:
    built, end = closing()
    late = context(now_ms=end.await_reward_until_ms)
    built.apply(*deadlines.overdue(built.session, late).events)
    before = trajectory(built.session, 0)

    assert answer(built, judged("kind")) == ["CommandRefused"]
    assert trajectory(built.session, 0) == before


def test_what_a_judge_gave_after_all_mends_its_failure() -> None:
    """A person may reward what the judge could not, before the session has ended."""
    built = session_after(
        rewarded(reward=r.Reward(name="kind", value=1), command_id="human", final=False)
    )
    end = decide(built.session, close_session(), context(judges=TERMS)).events[0]
    built.apply(end)
    assert answer(built, judged("kind", failure="away")) == ["RewardAssigned"]
    assert answer(built, judged("brief")) == ["RewardAssigned", "SessionFinalized"]
    assert trajectory(built.session, 0).cause == "policy"


def test_a_session_that_waits_for_judges_survives_being_spilled() -> None:
    built, _ = closing()
    answer(built, judged("kind", failure="away"))
    assert session_of(state_of(built.session)) == built.session
