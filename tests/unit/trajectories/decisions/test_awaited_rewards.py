"""Rewards that a closed session waits for by their names."""

from seamlessflow.consumers.trajectories.decisions.decide import decide
from seamlessflow.schemas import records as r
from tests.builders.records.commands import assign_reward, close_session
from tests.builders.records.sessions import closed, rewarded
from tests.builders.trajectories.decisions import context, kinds
from tests.builders.trajectories.session_builder import session_after


def test_a_session_that_awaits_names_ends_with_the_last_of_them_whoever_calls_one_final() -> None:
    by_name = {
        name: assign_reward(r.Reward(name=name, value=1), command_id=name)
        for name in ("test", "human")
    }
    asked = close_session(await_reward_ms=500, await_rewards=("test", "human"))
    (recorded,) = decide(session_after(rewarded()).session, asked, context()).events
    assert isinstance(recorded, r.SessionClosed) and recorded.await_rewards == ("test", "human")

    built = session_after(closed(await_reward_until_ms=9_000, await_rewards=("test", "human")))
    for name, expected in (
        ("test", ["RewardAssigned"]),
        ("human", ["RewardAssigned", "SessionFinalized"]),
    ):
        decision = decide(built.session, by_name[name], context())
        assert kinds(decision.events) == expected
        built.apply(*decision.events)


def test_a_session_with_all_names_is_final_when_it_closes() -> None:
    reward = rewarded(reward=r.Reward(name="test", value=1), final=False)
    asked = close_session(await_reward_ms=500, await_rewards=("test",))
    assert kinds(decide(session_after(reward).session, asked, context()).events) == [
        "SessionClosed",
        "SessionFinalized",
    ]
