"""What a manager makes of commands for sessions that nobody opened, and of questions."""

from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from infra.rendering.renderer import Renderer
from schemas import records as r
from schemas.records import Record
from schemas.topics import CONTROL, FLEET, REPLIES, REQUESTS, SESSIONS
from tests.builders.trajectories.story import message
from tests.properties.managers import Group, StagedManager
from tests.properties.test_ownership import own, read
from tests.properties.topics import Topics
from tests.unit.trajectories.decisions.test_decide import a_fleet, acquired, fields, request

TERMS = r.SessionTerms(policy="p", max_idle_ms=60_000, max_age_ms=60_000)


class Scene:
    """One manager after the other, on one partition."""

    def __init__(self, renderer: Renderer) -> None:
        self.topics = Topics()
        self.topics.append(FLEET.name, 0, a_fleet().policies["p"])
        self._group, self._renderer = Group(), renderer
        self.now_ms, self._managers = 1_000, 0
        self.manager = self.successor()

    def successor(self) -> StagedManager:
        """A manager that owns the partition from now on."""
        self._managers += 1
        made = StagedManager(
            f"m{self._managers}", self.topics, self._group, self._renderer, lambda: self.now_ms
        )
        made.hear(9)
        own(made)
        self.manager = made
        return made

    def ask(self, *commands: Record) -> None:
        """The commands arrive and are read, but nothing that the manager writes."""
        for command in commands:
            self.topics.append(REQUESTS.name, 0, command)
        self.manager.poll_requests(9)
        self.manager.handle(9)

    def serve(self, worker: str, policy: str) -> None:
        """A worker takes its role, and turns that wait are looked at."""
        self.topics.append(CONTROL.name, 0, acquired(worker, 0, policy=policy))
        self.manager.hear(9)
        self.manager.look()

    def settle(self, rounds: int = 8) -> None:
        """The manager reads what it wrote, again and again."""
        for _ in range(rounds):
            read(self.manager)
            self.manager.look()

    def events(self, kind: type[Record]) -> list[Any]:
        """What stands on the log."""
        return [one for one in self._records(SESSIONS.name, 0) if isinstance(one, kind)]

    def replies(self) -> list[Record]:
        """What gateways were told."""
        return list(self._records(REPLIES.name, 1))

    def _records(self, topic: str, partition: int) -> Iterable[Record]:
        return [received.record for received in self.topics.records[topic, partition]]


def asked(turn_id: str, text: str = "x", **more: Any) -> r.RequestTurn:
    return request(turn_id, messages=(message("user", text),), terms=TERMS, **more)


def test_requests_that_come_together_begin_one_session(renderers: Sequence[Renderer]) -> None:
    scene = Scene(renderers[0])

    scene.ask(asked("a"), asked("b"))
    scene.settle()

    (opened,) = scene.events(r.SessionOpened)
    assert [turn.turn_id for turn in scene.events(r.TurnStarted)] == ["a", "b"]
    assert {turn.session_id for turn in scene.events(r.TurnStarted)} == {opened.session_id}


def test_a_takeover_in_between_starts_the_turn_in_the_session_that_was_begun(
    renderers: Sequence[Renderer],
) -> None:
    scene = Scene(renderers[0])
    scene.ask(asked("a"), asked("b"))
    scene.manager.sending.flush()

    scene.successor()
    scene.ask()
    scene.settle()

    assert len(scene.events(r.SessionOpened)) == 1
    assert [turn.turn_id for turn in scene.events(r.TurnStarted)] == ["a", "b"]


def test_a_session_that_was_opened_and_closed_gives_way_to_one_of_its_name(
    renderers: Sequence[Renderer],
) -> None:
    scene = Scene(renderers[0])
    opening = r.OpenSession(**fields("o"), policy="p", max_age_ms=60_000, max_idle_ms=60_000)
    scene.ask(opening, r.CloseSession(**fields("c"), await_reward_ms=9_000), asked("a"))
    scene.settle()

    assert [event.name for event in scene.events(r.SessionOpened)] == ["", "s"]
    assert [turn.turn_id for turn in scene.events(r.TurnStarted)] == ["a"]


@pytest.mark.parametrize("await_reward_ms", [0, 9_000])
def test_a_name_begins_two_sessions_within_a_millisecond(
    await_reward_ms: int, renderers: Sequence[Renderer]
) -> None:
    scene = Scene(renderers[0])
    scene.ask(asked("a"), r.CloseSession(**fields("c"), await_reward_ms=await_reward_ms))
    scene.ask(asked("b"))
    scene.settle()

    first, second = scene.events(r.SessionOpened)
    assert first.session_id != second.session_id
    assert [turn.session_id for turn in scene.events(r.TurnStarted)] == [
        first.session_id,
        second.session_id,
    ]


def test_what_was_asked_of_a_closed_session_is_not_done_again_in_the_next_of_its_name(
    renderers: Sequence[Renderer],
) -> None:
    scene = Scene(renderers[0])
    scene.ask(asked("a"), r.CloseSession(**fields("c"), await_reward_ms=9_000))
    scene.settle()
    scene.now_ms += 1
    scene.ask(asked("b"))
    scene.settle()

    scene.successor()
    scene.ask()
    scene.settle()

    assert len(scene.events(r.SessionOpened)) == 2
    assert [turn.turn_id for turn in scene.events(r.TurnStarted)] == ["a", "b"]


def test_a_turn_waits_for_a_worker_of_its_policy_while_others_serve_another(
    renderers: Sequence[Renderer],
) -> None:
    scene = Scene(renderers[0])
    scene.serve("v", policy="another")
    scene.ask(asked("a"))
    scene.settle()
    waited = scene.events(r.TurnDispatched)

    scene.serve("w", policy="p")
    scene.settle()

    assert waited == []
    assert [turn.worker for turn in scene.events(r.TurnDispatched)] == ["w"]


def test_a_worker_that_comes_before_the_turn_is_read_back_gets_it(
    renderers: Sequence[Renderer],
) -> None:
    scene = Scene(renderers[0])
    scene.ask(r.OpenSession(**fields("o"), policy="p", max_age_ms=60_000, max_idle_ms=60_000))
    scene.settle()
    scene.ask(asked("a"))

    scene.serve("w", policy="p")
    scene.settle()

    assert [turn.worker for turn in scene.events(r.TurnDispatched)] == ["w"]


class Broken:
    """A renderer that fails as none should."""

    def render(self, messages: object, tools: object = None) -> bytes:
        raise IndexError("pop from empty list")


def test_a_question_that_a_renderer_trips_over_is_answered_and_stops_nobody() -> None:
    scene = Scene(Broken())  # type: ignore[arg-type]

    scene.ask(r.CountTokens(**fields("q"), messages=(message("user", "x"),), terms=TERMS))
    scene.manager.sending.flush()

    (reply,) = scene.replies()
    assert isinstance(reply, r.CommandAnswered)
    assert (reply.command_id, reply.status, reply.reason) == ("q", 500, "internal_error")
