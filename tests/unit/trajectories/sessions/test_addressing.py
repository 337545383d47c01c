"""Addresses of commands: a session's id, or a name that several sessions had."""

from typing import Any

from seamlessflow.consumers.trajectories.sessions.partition import Partition, PartitionProgress
from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Record
from seamlessflow.schemas.topics import SessionCommand
from tests.builders.records.commands import (
    assign_reward,
    cancel_turn,
    close_session,
    open_session,
    request_turn,
)
from tests.builders.records.sessions import claimed, closed, finalized, opened, rewarded, started

ONE: dict[str, Any] = {"session_id": "s~1"}
TWO: dict[str, Any] = {"session_id": "s~2"}
BEGUN = opened(name="s", **ONE), closed(await_reward_until_ms=9_000, **ONE), opened(name="s", **TWO)
"""Two sessions of a name; a reward for the first is still to come."""
TERMS = r.SessionTerms(policy="p")


def partition(*events: Record) -> Partition:
    made = Partition(0, PartitionProgress(), "me")
    for offset, event in enumerate((claimed(), *events)):
        folded = made.apply(event, offset, lambda _: "exact")
        if isinstance(event, r.SessionFinalized) and folded.session:
            made.end(folded.session)
    return made


def addressed(owner: Partition, command: SessionCommand | r.CountTokens) -> str | None:
    session = owner.find(command)
    return None if session is None else session.session_id


def reward(turn_id: str | None = None, session_id: str = "s") -> r.AssignReward:
    scope = "turn" if turn_id else "session"
    judged = r.Reward(value=1.0, scope=scope, turn_id=turn_id)
    return assign_reward(judged, session_id=session_id)


def test_a_request_that_names_a_session_goes_to_the_latest_of_the_name() -> None:
    assert addressed(partition(*BEGUN), request_turn(terms=TERMS)) == "s~2"
    assert addressed(partition(opened(), *BEGUN), request_turn(terms=TERMS)) == "s~2"
    assert addressed(partition(opened()), request_turn(terms=TERMS)) == "s"


def test_a_token_of_a_session_that_is_over_gets_into_no_other() -> None:
    over = partition(opened(), closed(), finalized(), *BEGUN)

    assert addressed(over, request_turn()) is None
    assert over.used("s")
    assert addressed(partition(opened(), *BEGUN), request_turn()) == "s"


def test_a_session_is_closed_by_its_id_or_as_the_latest_of_its_name() -> None:
    close = close_session()

    assert addressed(partition(*BEGUN), close) == "s~2"
    assert addressed(partition(opened(), *BEGUN), close) == "s"
    assert addressed(partition(opened(), closed(), finalized(), *BEGUN), close) is None


def test_a_reward_by_name_goes_to_the_session_that_waits_for_it() -> None:
    assert addressed(partition(*BEGUN), reward()) == "s~1"
    assert addressed(partition(*BEGUN, rewarded(), closed(**TWO)), reward()) == "s~1"
    judged = partition(BEGUN[0], rewarded(**ONE), *BEGUN[1:])
    assert addressed(judged, reward()) == "s~2"


def test_a_reward_by_id_goes_to_that_session_alone() -> None:
    assert addressed(partition(*BEGUN), reward(session_id="s~2")) == "s~2"
    assert addressed(partition(*BEGUN), reward(session_id="s~1")) == "s~1"


def test_what_names_a_turn_goes_to_the_session_of_the_turn() -> None:
    owner = partition(BEGUN[0], started("a", **ONE), *BEGUN[1:], started("b", **TWO))
    cancel = cancel_turn("b")

    assert addressed(owner, reward("a")) == "s~1"
    assert addressed(owner, reward("b")) == "s~2"
    assert addressed(owner, cancel) == "s~2"


def test_no_session_is_opened_under_a_name_that_is_in_use() -> None:
    assert addressed(partition(*BEGUN), open_session()) == "s~2"


def test_a_reward_goes_to_the_first_session_that_still_lacks_one_that_it_awaits() -> None:
    waits = closed(await_reward_until_ms=9_000, await_rewards=("reward", "human"), **ONE)
    begun = opened(name="s", **ONE), waits, opened(name="s", **TWO)
    assert addressed(partition(*begun, rewarded(**ONE)), reward()) == "s~1"
    judged = r.Reward(name="human", value=1.0)
    human = rewarded(judged, command_id="other", **ONE)
    assert addressed(partition(*begun, rewarded(**ONE), human), reward()) == "s~2"
