"""Sessions that go on from ended ones, against a scripted gateway."""

from collections.abc import Mapping
from dataclasses import replace

import orjson
import pytest

from seamlessflow.infra.errors import KafkaUnavailable
from seamlessflow.producers.agents.beginnings import NoBeginning
from seamlessflow.producers.agents.harness.agent import CallableAgent
from seamlessflow.producers.agents.harness.session import AgentSession
from seamlessflow.schemas.json_form import to_json
from seamlessflow.schemas.records import ForkedPrefix, ParentPlace, Task
from tests.builders.records.forks import forked
from tests.integration.agents.one_episode import SESSION, THREADS, a_task, closed, run

Payload = Mapping[str, object]
PLACE = ParentPlace(session_id="recorded", turn=2, first_offset=7, parent_return=1.0)


def going_on() -> Task:
    """Return a task whose session goes on from an ended one; its deadline counts from now."""
    return replace(a_task(), fork_at=PLACE)


class Copies:
    """Beginnings that are copied at once, or refused."""

    def __init__(self, error: Exception | None = None) -> None:
        self.asked: list[tuple[ParentPlace, str]] = []
        self._error = error

    def prefix(self, place: ParentPlace, mode: str) -> ForkedPrefix:
        self.asked.append((place, mode))
        if self._error is not None:
            raise self._error
        return forked(mode=mode)


async def count(task: Payload, session: AgentSession) -> float:
    """Return the number of messages with which the agent begins."""
    return float(len(session.messages))


async def never(task: Payload, session: AgentSession) -> float:
    raise AssertionError("must not run")


@pytest.mark.parametrize(("mode", "messages"), [("middle", 3.0), ("playback", 0.0)])
def test_an_agent_begins_as_it_declares(mode: str, messages: float) -> None:
    copies = Copies()
    gateway = run(CallableAgent(count, THREADS), going_on(), beginnings=copies, forks=mode)
    assert copies.asked == [(PLACE, mode)]
    assert gateway.calls[0].body["fork"] == orjson.loads(to_json(forked(mode=mode)))
    assert gateway.calls[1].body["value"] == messages


def test_a_place_that_is_gone_ends_the_sample_at_once_with_the_reason() -> None:
    copies = Copies(NoBeginning(PLACE, "retention removed its events"))
    gateway = run(CallableAgent(never, THREADS), going_on(), beginnings=copies, forks="middle")
    assert gateway.paths() == ["/sessions", f"/sessions/{SESSION}/close"]
    assert closed(gateway) == ("aborted", "setting")
    reason = "turn 2 of session recorded: retention removed its events"
    assert gateway.calls[-1].body["reason"] == reason


@pytest.mark.parametrize("copies", [Copies(), None], ids=["copies", "no copies"])
def test_an_agent_that_declares_nothing_never_begins_there(copies: Copies | None) -> None:
    gateway = run(CallableAgent(never, THREADS), going_on(), beginnings=copies)
    assert closed(gateway) == ("aborted", "setting")
    assert str(gateway.calls[-1].body["reason"]).endswith("agents.forks is none")
    assert copies is None or copies.asked == []


def test_a_process_that_copies_nothing_says_so() -> None:
    gateway = run(CallableAgent(never, THREADS), going_on(), forks="middle")
    assert str(gateway.calls[-1].body["reason"]).endswith("copies no beginnings")


def test_no_session_is_opened_by_a_process_that_ends_before_kafka_answers() -> None:
    copies = Copies(KafkaUnavailable("servers", 1.0, "asked to end"))
    gateway = run(CallableAgent(never, THREADS), going_on(), beginnings=copies, forks="middle")
    assert gateway.paths() == []
