"""Session calls that clients repeat by the name of a session that began with its first request."""

from dataclasses import replace

import pytest

from seamlessflow.consumers.trajectories.decisions.context import Decision
from seamlessflow.consumers.trajectories.decisions.decide import decide
from seamlessflow.consumers.trajectories.sessions.ended import EndedRead
from seamlessflow.consumers.trajectories.sessions.partition import Partition, PartitionProgress
from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Record
from seamlessflow.schemas.topics import SessionCommand
from tests.builders.records.commands import assign_reward, close_session
from tests.builders.records.sessions import claimed, opened
from tests.builders.trajectories.decisions import context, kinds

FIRST = opened(session_id="s~1", name="s")
NEXT = opened(session_id="s~2", name="s")
REWARD = assign_reward(r.Reward(value=0.5), idempotency_key="k1")
EARLY_CLOSE = close_session(idempotency_key="k2", await_reward_ms=9_000)
CLOSE = replace(EARLY_CLOSE, await_reward_ms=0)


class NamedSessions:
    """A partition with the sessions of a name, whose commands are decided one after the other."""

    def __init__(self, *events: Record) -> None:
        self.partition = Partition(0, PartitionProgress(), "me")
        self.kept: list[r.EndedSession] = []
        self.apply(claimed(), *events)

    def apply(self, *events: Record) -> None:
        for event in events:
            folded = self.partition.apply(event, self.partition.position, lambda _: "exact")
            if isinstance(event, r.SessionFinalized) and folded.session is not None:
                self.kept.append(self.partition.end(folded.session))

    def call(self, command: SessionCommand, command_id: str = "again") -> Decision:
        command, partition = replace(command, command_id=command_id), self.partition
        situation = context(ended=partition.ended, used=partition.used)
        decision = decide(partition.find(command), command, situation)
        self.apply(*decision.events)
        return decision

    def taken_over(self, *events: Record) -> "NamedSessions":
        """Return what the next owner knows, if these events stand behind the last commit."""
        read = EndedRead()
        for record in self.kept:
            read.apply(record)
        new = NamedSessions(*events)
        new.partition.ended.load(read)
        return new


def changed(decision: Decision) -> str | None:
    """Return the session that the answer to a repeat names, or None if it is no repeat."""
    return None if decision.events or decision.answer is None else decision.answer.session_id


@pytest.mark.parametrize("close", [CLOSE, EARLY_CLOSE], ids=["finalized", "waiting"])
@pytest.mark.parametrize("later", [[], [NEXT]], ids=["alone", "with-a-next"])
def test_a_close_repeated_by_name_closes_no_other_session(
    close: r.CloseSession, later: list[Record]
) -> None:
    sessions = NamedSessions(FIRST)
    sessions.call(close, "first")
    sessions.apply(*later)

    assert changed(sessions.call(close)) == "s~1"


@pytest.mark.parametrize("close", [CLOSE, EARLY_CLOSE], ids=["rewarded-before", "rewarded-late"])
@pytest.mark.parametrize("later", [[], [NEXT]], ids=["alone", "with-a-next"])
def test_a_reward_repeated_by_name_is_assigned_to_no_other_session(
    close: r.CloseSession, later: list[Record]
) -> None:
    sessions = NamedSessions(FIRST)
    calls: list[SessionCommand] = [REWARD, close] if close is CLOSE else [close, REWARD]
    for number, call in enumerate(calls):
        sessions.call(call, f"first-{number}")
    sessions.apply(*later)

    assert [changed(sessions.call(call)) for call in calls] == ["s~1", "s~1"]


@pytest.mark.parametrize("later", [[], [NEXT]], ids=["alone", "with-a-next"])
def test_calls_by_name_are_repeated_after_a_takeover(later: list[Record]) -> None:
    before = NamedSessions(FIRST)
    before.call(REWARD, "first-reward")
    before.call(CLOSE, "first-close")
    after = before.taken_over(*later)

    assert [changed(after.call(REWARD)), changed(after.call(CLOSE))] == ["s~1", "s~1"]


def test_a_call_by_name_may_be_repeated_by_id() -> None:
    sessions = NamedSessions(FIRST)
    sessions.call(CLOSE, "first")

    assert changed(sessions.call(replace(CLOSE, session_id="s~1"))) == "s~1"


@pytest.mark.parametrize("key", ["other", None])
def test_another_call_by_name_is_of_the_next_session(key: str | None) -> None:
    sessions = NamedSessions(FIRST)
    first = replace(CLOSE, idempotency_key="k2" if key else None)
    sessions.call(first, "first")
    sessions.apply(NEXT)

    closing = sessions.call(replace(first, idempotency_key=key))

    assert kinds(closing.events) == ["SessionClosed", "SessionFinalized"]
    assert sessions.partition.used("s~2")
    assert not sessions.partition.sessions


def test_a_call_with_a_key_waits_for_the_sessions_that_a_former_owner_ended() -> None:
    new = NamedSessions(NEXT).partition
    by_id, unkeyed = replace(CLOSE, session_id="s~2"), replace(CLOSE, idempotency_key=None)

    before = [new.too_early(command) for command in (CLOSE, REWARD, by_id, unkeyed)]
    new.ended.load(EndedRead())

    assert before == [True, True, False, False]
    assert not new.too_early(CLOSE)
