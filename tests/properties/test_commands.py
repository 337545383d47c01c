"""Commands for sessions that no command opened, and questions, in a manager."""

from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from infra.rendering.renderer import Renderer
from schemas import records as r
from schemas.records import Record
from schemas.topics import CONTROL, FLEET, REPLIES, REQUESTS, SESSIONS
from tests.builders.records.commands import close_session, count_tokens, open_session, request_turn
from tests.builders.records.content import message
from tests.builders.trajectories.decisions import WEIGHTS, acquired
from tests.properties.simulation.managers import Group, SteppedManager, become_owner, read_back
from tests.properties.simulation.topics import Topics

TERMS = r.SessionTerms(policy="p", max_idle_ms=60_000, max_age_ms=60_000)


class ManagedPartition:
    """A partition that one manager after the other owns."""

    def __init__(self, renderer: Renderer) -> None:
        self.topics = Topics()
        self.topics.append(FLEET.name, 0, WEIGHTS)
        self._group, self._renderer = Group(), renderer
        self.now_ms, self._managers = 1_000, 0
        self.manager = self.successor()

    def successor(self) -> SteppedManager:
        """Start another manager and let it own the partition."""
        self._managers += 1
        made = SteppedManager(
            f"m{self._managers}", self.topics, self._group, self._renderer, lambda: self.now_ms
        )
        made.hear(9)
        become_owner(made)
        self.manager = made
        return made

    def ask(self, *commands: Record) -> None:
        """Deliver commands to the manager, but none of its own records."""
        for command in commands:
            self.topics.append(REQUESTS.name, 0, command)
        self.manager.poll_requests(9)
        self.manager.handle(9)

    def serve(self, worker: str, policy: str) -> None:
        """Let a worker acquire its role and the manager place waiting turns."""
        self.topics.append(CONTROL.name, 0, acquired(worker, 0, policy=policy))
        self.manager.hear(9)
        self.manager.look()

    def settle(self, rounds: int = 8) -> None:
        """Let the manager read its own records back, `rounds` times."""
        for _ in range(rounds):
            read_back(self.manager)
            self.manager.look()

    def events(self, kind: type[Record]) -> list[Any]:
        """Return the events of a kind on the log."""
        return [one for one in self._records(SESSIONS.name, 0) if isinstance(one, kind)]

    def replies(self) -> list[Record]:
        """Return the replies to gateways."""
        return list(self._records(REPLIES.name, 1))

    def _records(self, topic: str, partition: int) -> Iterable[Record]:
        return [received.record for received in self.topics.records[topic, partition]]


def asked(turn_id: str, text: str = "x", **more: Any) -> r.RequestTurn:
    return request_turn(turn_id, messages=(message("user", text),), terms=TERMS, **more)


def test_requests_that_come_together_begin_one_session(renderers: Sequence[Renderer]) -> None:
    partition = ManagedPartition(renderers[0])

    partition.ask(asked("a"), asked("b"))
    partition.settle()

    (opened,) = partition.events(r.SessionOpened)
    assert [turn.turn_id for turn in partition.events(r.TurnStarted)] == ["a", "b"]
    assert {turn.session_id for turn in partition.events(r.TurnStarted)} == {opened.session_id}


def test_a_takeover_in_between_starts_the_turn_in_the_session_that_was_begun(
    renderers: Sequence[Renderer],
) -> None:
    partition = ManagedPartition(renderers[0])
    partition.ask(asked("a"), asked("b"))
    partition.manager.sending.flush()

    partition.successor()
    partition.ask()
    partition.settle()

    assert len(partition.events(r.SessionOpened)) == 1
    assert [turn.turn_id for turn in partition.events(r.TurnStarted)] == ["a", "b"]


def test_a_session_that_was_opened_and_closed_gives_way_to_one_of_its_name(
    renderers: Sequence[Renderer],
) -> None:
    partition = ManagedPartition(renderers[0])
    opening = open_session(max_age_ms=60_000, max_idle_ms=60_000)
    partition.ask(opening, close_session(await_reward_ms=9_000), asked("a"))
    partition.settle()

    assert [event.name for event in partition.events(r.SessionOpened)] == ["", "s"]
    assert [turn.turn_id for turn in partition.events(r.TurnStarted)] == ["a"]


@pytest.mark.parametrize("await_reward_ms", [0, 9_000])
def test_a_name_begins_two_sessions_within_a_millisecond(
    await_reward_ms: int, renderers: Sequence[Renderer]
) -> None:
    partition = ManagedPartition(renderers[0])
    partition.ask(asked("a"), close_session(await_reward_ms=await_reward_ms))
    partition.ask(asked("b"))
    partition.settle()

    first, second = partition.events(r.SessionOpened)
    assert first.session_id != second.session_id
    assert [turn.session_id for turn in partition.events(r.TurnStarted)] == [
        first.session_id,
        second.session_id,
    ]


def test_what_was_asked_of_a_closed_session_is_not_done_again_in_the_next_of_its_name(
    renderers: Sequence[Renderer],
) -> None:
    partition = ManagedPartition(renderers[0])
    partition.ask(asked("a"), close_session(await_reward_ms=9_000))
    partition.settle()
    partition.now_ms += 1
    partition.ask(asked("b"))
    partition.settle()

    partition.successor()
    partition.ask()
    partition.settle()

    assert len(partition.events(r.SessionOpened)) == 2
    assert [turn.turn_id for turn in partition.events(r.TurnStarted)] == ["a", "b"]


def test_a_turn_waits_for_a_worker_of_its_policy_while_others_serve_another(
    renderers: Sequence[Renderer],
) -> None:
    partition = ManagedPartition(renderers[0])
    partition.serve("v", policy="another")
    partition.ask(asked("a"))
    partition.settle()
    waited = partition.events(r.TurnDispatched)

    partition.serve("w", policy="p")
    partition.settle()

    assert waited == []
    assert [turn.worker for turn in partition.events(r.TurnDispatched)] == ["w"]


def test_a_worker_that_comes_before_the_turn_is_read_back_gets_it(
    renderers: Sequence[Renderer],
) -> None:
    partition = ManagedPartition(renderers[0])
    partition.ask(open_session(max_age_ms=60_000, max_idle_ms=60_000))
    partition.settle()
    partition.ask(asked("a"))

    partition.serve("w", policy="p")
    partition.settle()

    assert [turn.worker for turn in partition.events(r.TurnDispatched)] == ["w"]


class Broken:
    """A renderer that raises an unexpected error."""

    def render(self, messages: object, tools: object = None) -> bytes:
        raise IndexError("pop from empty list")


def test_a_question_that_a_renderer_trips_over_is_answered_and_stops_nobody() -> None:
    partition = ManagedPartition(Broken())  # type: ignore[arg-type]

    partition.ask(count_tokens(terms=TERMS))
    partition.manager.sending.flush()

    (reply,) = partition.replies()
    assert isinstance(reply, r.CommandAnswered)
    assert (reply.command_id, reply.status, reply.reason) == ("q", 500, "internal_error")
