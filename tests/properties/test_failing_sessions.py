"""One session that an error inside the manager hits: the manager and all other sessions go on."""

from typing import Any

import pytest

from seamlessflow.consumers.trajectories.acting.actor import Actor
from seamlessflow.consumers.trajectories.matching.match import RequestMessages
from seamlessflow.consumers.trajectories.sessions.fold import Folded
from seamlessflow.consumers.trajectories.sessions.partition import Partition
from seamlessflow.consumers.trajectories.sessions.session import MANAGER_FAILED, Session
from seamlessflow.infra.errors import NewerRelease
from seamlessflow.infra.kafka.client import Received
from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Record
from seamlessflow.schemas.topics import REQUESTS, SESSIONS
from tests.builders.records import sessions
from tests.builders.records.commands import assign_reward, close_session, open_session, request_turn
from tests.builders.records.content import ids, message
from tests.builders.trajectories.decisions import OneTokenAMessage
from tests.properties.managed_partition import ManagedPartition
from tests.properties.simulation.managers import SteppedManager

POISON = "poison"
UNREADABLE = b'{"role":"assistant","tool_calls":['
"""A message that no worker writes; the fold reads it as JSON."""


class Tripping(OneTokenAMessage):
    """A renderer that raises for one message."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def render(self, messages: RequestMessages, tools: RequestMessages | None = None) -> bytes:
        if any(entry.get("content") == POISON for entry in messages):
            raise self._error
        return super().render(messages, tools)


class TrippingActor(Actor):
    """An actor that raises behind each completed turn."""

    def _follow_up(
        self, partition: Partition, session: Session, received: Received, folded: Folded
    ) -> None:
        if isinstance(received.record, r.TurnCompleted):
            raise IndexError("pop from empty list")
        super()._follow_up(partition, session, received, folded)


class TrippingManager(SteppedManager):
    """A manager with such an actor."""

    actor_class = TrippingActor


def serving(
    kind: type[SteppedManager] = SteppedManager, error: Exception | None = None
) -> ManagedPartition:
    """Return a partition with a worker and two open sessions, `s` and `other`."""
    partition = ManagedPartition(Tripping(error or IndexError("pop from empty list")), kind)
    partition.serve("w", policy="p")
    lasting: dict[str, Any] = {"max_age_ms": 60_000, "max_idle_ms": 60_000}
    for session_id in ("s", "other"):
        command_id = f"open {session_id}"
        partition.ask(open_session(session_id=session_id, command_id=command_id, **lasting))
    partition.settle()
    return partition


def asked(turn_id: str, text: str = "x", **more: Any) -> r.RequestTurn:
    return request_turn(turn_id, messages=(message("user", text),), **more)


def sampled(partition: ManagedPartition, turn_id: str, **more: Any) -> r.TurnCompleted:
    """Return the completion of a turn that was dispatched."""
    (turn,) = (event for event in partition.events(r.TurnDispatched) if event.turn_id == turn_id)
    place = {"session_id": turn.session_id, "incarnation": turn.incarnation}
    prompt = {"prompt": ids(1)}
    return sessions.completed(ids(7, 0), turn_id, **{**place, **prompt, **more})


def end(partition: ManagedPartition, session_id: str) -> r.Trajectory:
    """Reward and close a session; return its trajectory."""
    fields = {"session_id": session_id}
    partition.ask(assign_reward(r.Reward(value=1.0), command_id=f"reward {session_id}", **fields))
    partition.ask(close_session(command_id=f"close {session_id}", **fields))
    partition.settle()
    return next(
        trajectory for trajectory in partition.commit() if trajectory.session_id == session_id
    )


def serve_other(partition: ManagedPartition) -> None:
    """Let the other session get an answer and its trajectory."""
    partition.ask(asked("b", session_id="other"))
    partition.settle()
    partition.happen(sampled(partition, "b"))
    assert sum(end(partition, "other").loss_mask) == 2


def letters(partition: ManagedPartition, topic: str) -> list[Record]:
    return [received.record for received in partition.topics.records[f"{topic}.dlq", 0]]


def finished(partition: ManagedPartition, turn_id: str) -> tuple[int, str]:
    """Return status and reason of the answer to a turn."""
    (reply,) = (
        answer
        for answer in partition.replies()
        if isinstance(answer, r.ReplyFinished) and answer.turn_id == turn_id
    )
    return reply.status, reply.reason


def test_a_request_that_the_renderer_trips_over_is_refused_and_the_session_goes_on() -> None:
    partition = serving()

    partition.ask(asked("a", POISON))
    partition.settle()

    (refused,) = partition.events(r.CommandRefused)
    assert (refused.status, refused.reason, refused.turn_id) == (500, "internal_error", "a")
    assert letters(partition, REQUESTS.name) == [asked("a", POISON)]
    partition.ask(asked("good"))
    partition.settle()
    partition.happen(sampled(partition, "good"))
    assert end(partition, "s").status == "complete"
    serve_other(partition)


@pytest.mark.parametrize("error", [MemoryError(), NewerRelease("sessions", 0, 1, "a new rule")])
def test_what_must_end_the_process_is_not_taken_for_the_session_s_fault(error: Exception) -> None:
    partition = serving(error=error)

    with pytest.raises(type(error)):
        partition.ask(asked("a", POISON))


def test_a_session_whose_event_cannot_be_folded_is_given_up_by_events() -> None:
    partition = serving()
    partition.ask(asked("a"))
    partition.settle()

    partition.happen(poison := sampled(partition, "a", message=UNREADABLE))

    (closed,) = partition.events(r.SessionClosed)
    assert (closed.session_id, closed.status, closed.cause) == ("s", "aborted", "infrastructure")
    assert len(partition.events(r.SessionFinalized)) == 1
    assert finished(partition, "a") == (500, "internal_error")
    assert letters(partition, SESSIONS.name) == [poison]
    (made,) = partition.commit()
    assert (made.session_id, made.status, made.reason) == ("s", "aborted", MANAGER_FAILED)
    assert (made.tokens, made.nodes) == (b"", ())
    serve_other(partition)


def test_a_successor_gives_up_what_failed_under_a_manager_that_died_of_it() -> None:
    partition = serving()
    partition.ask(asked("a"))
    partition.settle()
    partition.topics.append(SESSIONS.name, 0, sampled(partition, "a", message=UNREADABLE))

    partition.successor()
    partition.settle()

    (closed,) = partition.events(r.SessionClosed)
    assert closed.reason == MANAGER_FAILED
    assert [made.session_id for made in partition.commit()] == ["s"]
    partition.successor()
    partition.settle()
    assert len(partition.events(r.SessionClosed)) == 1
    assert len(letters(partition, SESSIONS.name)) == 1


def test_a_session_that_cannot_be_acted_on_is_given_up() -> None:
    partition = serving(TrippingManager)
    partition.ask(asked("a"))
    partition.settle()

    partition.happen(sampled(partition, "a"))

    (made,) = partition.commit()
    assert (made.session_id, made.status, made.reason) == ("s", "aborted", MANAGER_FAILED)


def test_a_session_that_cannot_be_assembled_gets_a_trajectory_without_tokens() -> None:
    partition = serving()
    odd = sessions.started("x", ids(5), suffix_origin="policy", command_id="x", reply=None)

    partition.happen(odd)
    made = end(partition, "s")

    assert (made.status, made.reason, made.tokens) == ("aborted", "not_assembled", b"")
    serve_other(partition)


def test_calls_behind_the_event_that_fails_their_session_are_answered() -> None:
    partition = serving()
    partition.ask(asked("a"))
    partition.settle()
    poison = sampled(partition, "a", message=UNREADABLE)
    partition.topics.append(SESSIONS.name, 0, poison)

    partition.ask(asked("b"))  # decided before the failure is read
    partition.settle()
    partition.ask(asked("c"))

    partition.settle()
    answers = [reply for reply in partition.replies() if isinstance(reply, r.CommandAnswered)]
    assert [
        (answer.turn_id, answer.status, answer.reason) for answer in answers if answer.turn_id
    ] == [
        ("b", 500, "internal_error"),
        ("c", 409, "session_closed"),
    ]
