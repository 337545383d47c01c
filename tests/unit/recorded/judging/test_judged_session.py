"""Sessions as judges get them."""

from seamlessflow.schemas.records import Reward
from tests.builders.judging import reward_of, seen_session
from tests.builders.records.sessions import rewarded


def test_a_judge_sees_messages_tokens_turns_and_who_the_session_is() -> None:
    session = seen_session()

    assert [part["content"] for part in session.messages] == ["hi", "hello"]
    assert session.tokens == [1, 2, 7, 8]
    (turn,) = session.turns
    assert (turn.tokens, turn.message["role"]) == ([7, 8], "assistant")
    assert (session.group_id, session.task_id, session.metadata) == ("g", "t", {"level": "3"})
    assert (session.status, session.task) == ("complete", None)


def test_a_judge_sees_the_agents_rewards_and_no_other_judges() -> None:
    """Else its reward would differ with the order in which judges answer."""
    of_turn = Reward(name="step", value=0.25, scope="turn", turn_id="a")
    session = seen_session(
        rewarded(reward=Reward(name="test", value=0.5), final=False),
        rewarded(reward=of_turn, command_id="turn", final=False),
        reward_of("kind"),
    )
    assert session.rewards == {"test": 0.5}
    assert session.turn_rewards == {"a": {"step": 0.25}}
