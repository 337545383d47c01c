"""Sessions that wait for judges, on the log and as judges see them."""

from collections.abc import Sequence
from typing import Any

from seamlessflow.consumers.trajectories.sessions.partition import LoggedPartition
from seamlessflow.recorded.judging.judged_session import JudgedSession, judged_session
from seamlessflow.recorded.judging.requests import RequestedPartition
from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Record
from tests.builders.records.content import ids, message
from tests.builders.records.sessions import closed, completed, dispatched, opened, started
from tests.builders.trajectories.session_builder import SessionBuilder


def ended_session(*judges: str, session: str = "s", **fields: Any) -> list[Record]:
    """Return the events of a session with one turn that was closed and waits for these judges."""
    return [
        opened(session_id=session, group_id="g", task_id="t", metadata={"level": "3"}),
        started(session_id=session, suffix_ids=ids(1, 2), new_messages=(message("user", "hi"),)),
        dispatched(session_id=session),
        completed(ids(7, 8), session_id=session, message=message("assistant", "hello")),
        closed(
            session_id=session,
            await_rewards=judges,
            judges=judges,
            await_reward_until_ms=9_000,
            **fields,
        ),
    ]


def seen_session(*more: Record, session: str = "s") -> JudgedSession:
    """Return the same session as its judges see it; `more` happened before its end."""
    *before, end = ended_session("kind", session=session)
    return judged_session(SessionBuilder().apply(*before, *more, end).session)


def requested(events: Sequence[Record], begin: int = 0) -> RequestedPartition:
    """Return a partition with these events from this offset on."""
    partition = RequestedPartition(LoggedPartition(0, position=begin))
    for offset, event in enumerate(events, begin):
        partition.apply(event, offset)
    return partition


def reward_of(judge: str, value: float = 1.0, session: str = "s", **fields: Any) -> Record:
    """Return the event that records a judge's reward."""
    return r.RewardAssigned(
        session_id=session,
        epoch=1,
        at_ms=45,
        command_id=f"{session}.judge.{judge}",
        reward=r.Reward(name=judge, value=value, source="judge"),
        final=False,
        **fields,
    )
