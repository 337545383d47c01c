"""Commands for sessions that no command opened, and questions, in a manager."""

from collections.abc import Sequence

import pytest

from seamlessflow.infra.rendering.renderer import Renderer
from seamlessflow.schemas import records as r
from tests.builders.records.commands import close_session, count_tokens, open_session
from tests.properties.managed_partition import TERMS, ManagedPartition, asked


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
