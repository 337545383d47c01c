"""A prompt that takes long to tokenise holds no other session up, and nothing of it is lost."""

import threading
import time
from collections.abc import Iterator

import pytest

from seamlessflow.consumers.trajectories.matching.match import RequestMessages
from seamlessflow.infra.rendering.tokenizer import TokensWanted
from seamlessflow.schemas import records as r
from tests.builders.records.commands import count_tokens, request_turn
from tests.builders.records.content import message
from tests.builders.trajectories.decisions import OneTokenAMessage
from tests.properties.managed_partition import TERMS, ManagedPartition

LONG = "long"
DEADLINE_S = 120


class PutsOff(OneTokenAMessage):
    """A renderer for which a text is long, and whose tokens come when the test lets them."""

    def __init__(self, error: Exception | None = None) -> None:
        self.let, self.tokenised = threading.Event(), False
        self.runs = 0
        self._error = error

    def render(self, messages: RequestMessages, tools: RequestMessages | None = None) -> bytes:
        if any(entry.get("content") == LONG for entry in messages):
            if not self.tokenised:
                raise TokensWanted(LONG, self._tokenise)
            if self._error is not None:
                raise self._error
        return super().render(messages, tools)

    def _tokenise(self) -> None:
        assert self.let.wait(DEADLINE_S)
        self.tokenised, self.runs = True, self.runs + 1


@pytest.fixture
def renderer() -> Iterator[PutsOff]:
    made = PutsOff()
    yield made
    made.let.set()


def asked(turn_id: str, text: str, session_id: str = "s") -> r.RequestTurn:
    messages = (message("user", text),)
    return request_turn(turn_id, session_id=session_id, messages=messages, terms=TERMS)


def begun(partition: ManagedPartition) -> list[str]:
    return [event.turn_id for event in partition.events(r.TurnStarted)]


def settle_until(partition: ManagedPartition, turns: list[str]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while begun(partition) != turns:
        assert time.monotonic() < deadline, begun(partition)
        partition.settle()


def serving(renderer: PutsOff) -> ManagedPartition:
    partition = ManagedPartition(renderer)
    partition.serve("w", policy="p")
    return partition


def test_other_sessions_go_on_while_a_long_text_is_tokenised(renderer: PutsOff) -> None:
    partition = serving(renderer)
    partition.ask(asked("long", LONG), asked("behind", "x"), asked("b", "x", session_id="other"))
    partition.settle()
    assert begun(partition) == ["b"]

    renderer.let.set()
    settle_until(partition, ["b", "long", "behind"])
    assert renderer.runs == 1
    assert [event.turn_id for event in partition.events(r.TurnDispatched)] == begun(partition)


def test_two_requests_of_one_text_tokenise_it_once(renderer: PutsOff) -> None:
    partition = serving(renderer)
    partition.ask(asked("a", LONG), asked("b", LONG, session_id="other"))
    partition.settle()
    assert begun(partition) == []

    renderer.let.set()
    settle_until(partition, ["a", "b"])
    assert renderer.runs == 1


def test_the_next_owner_decides_what_waited(renderer: PutsOff) -> None:
    partition = serving(renderer)
    partition.ask(asked("long", LONG))
    partition.settle()
    partition.commit()

    partition.successor()
    partition.manager.poll_requests(9)
    renderer.let.set()
    settle_until(partition, ["long"])


def test_a_text_that_cannot_be_tokenised_is_refused() -> None:
    renderer = PutsOff(ValueError("no such letter"))
    partition = serving(renderer)
    partition.ask(asked("long", LONG))
    renderer.let.set()
    deadline = time.monotonic() + DEADLINE_S
    while not partition.events(r.CommandRefused):
        assert time.monotonic() < deadline
        partition.settle()
    (refused,) = partition.events(r.CommandRefused)
    assert (refused.status, refused.detail) == (400, "no such letter")


def test_a_count_of_tokens_waits_for_them_too(renderer: PutsOff) -> None:
    partition = serving(renderer)
    partition.ask(count_tokens(messages=(message("user", LONG),), terms=TERMS))
    partition.ask(asked("b", "x"))
    partition.settle()
    assert begun(partition) == ["b"]
    answers = [reply for reply in partition.replies() if isinstance(reply, r.CommandAnswered)]
    assert not answers

    renderer.let.set()
    deadline = time.monotonic() + DEADLINE_S
    while not answers:
        assert time.monotonic() < deadline
        partition.settle()
        answers = [reply for reply in partition.replies() if isinstance(reply, r.CommandAnswered)]
    assert answers[0].tokens == 1
