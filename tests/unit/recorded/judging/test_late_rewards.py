"""Rewards of judges that came when their sessions had ended."""

from collections.abc import Iterable, Mapping

from seamlessflow.recorded.judging.late_rewards import LateRewards
from seamlessflow.recorded.judging.requests import JudgementKey, reward_commands
from seamlessflow.recorded.judging.verdict import JudgesWord, Rewarded, Unrewarded
from seamlessflow.schemas.records import AssignReward, Record
from tests.builders.judging import ended_session, reward_of
from tests.builders.records.sessions import finalized

ENDED = (*ended_session("kind", "brief"), reward_of("brief"), finalized(reason="judge_failed"))
"""A session that ended without the reward of `kind`."""


def sent(judge: str, word: JudgesWord) -> list[AssignReward]:
    return reward_commands(JudgementKey("s", judge), word, 10_000, 9_000)


def late(events: Iterable[Record], *commands: AssignReward) -> Mapping[str, list[float]]:
    rewards = LateRewards()
    for event in events:
        rewards.apply(event)
    for command in commands:
        rewards.add(command)
    return {
        session: [reward.value for reward in of_session]
        for session, of_session in rewards.by_session().items()
    }


def test_a_reward_that_its_session_lacks_is_late_and_the_first_counts() -> None:
    first, second = (sent("kind", Rewarded(value)) for value in (0.5, 1.0))
    assert late(ENDED, *first, *second) == {"s": [0.5]}


def test_a_reward_that_was_recorded_is_not_late() -> None:
    assert late(ENDED, *sent("brief", Rewarded(0.5))) == {}
    in_time = (*ended_session("kind"), reward_of("kind"), finalized())
    assert late(in_time, *sent("kind", Rewarded(0.5))) == {}


def test_the_word_that_there_is_no_reward_is_none() -> None:
    failed = (*ended_session("kind"), reward_of("kind", failure="prose"), finalized())
    no_reward = sent("kind", Unrewarded("prose"))
    assert late(failed, *no_reward) == {}
    assert late(failed, *no_reward, *sent("kind", Rewarded(0.5))) == {"s": [0.5]}


def test_rewards_of_turns_are_late_once_that_of_the_session_is_there() -> None:
    of_turns = sent("kind", Rewarded(0.5, {"a": 0.25, "b": 0.75}))
    assert late(ENDED, *of_turns) == {"s": [0.25, 0.75, 0.5]}
    assert late(ENDED, *of_turns[:-1]) == {}


def test_an_open_session_has_no_late_rewards() -> None:
    assert late(ended_session("kind"), *sent("kind", Rewarded(0.5))) == {}
