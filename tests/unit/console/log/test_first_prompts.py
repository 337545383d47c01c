"""First prompts of sessions, read from the log at a moment."""

from seamlessflow.console.log.first_prompts import first_prompts
from seamlessflow.console.log.moment import Moment
from seamlessflow.infra.kafka.client import Received
from seamlessflow.schemas.codec import encode
from seamlessflow.schemas.records import Record
from tests.builders.console.memory_log import history_of, raw_item
from tests.builders.records import sessions

SESSION = "mine"


def item(offset: int, event: Record, key: str = SESSION, partition: int = 1) -> Received:
    return raw_item("sessions", partition, offset, offset, encode(event), key=key)


def turn(name: str, prompt: bytes = b"{}") -> Record:
    return sessions.started(name, session_id=SESSION, new_messages=(prompt,))


def turns_of(items: list[Received], at: int | None = None, first: int = 5) -> list[str]:
    run_log, _ = history_of(items)
    moment = None if at is None else Moment("sessions", 1, at)
    cut = run_log.outline(moment).cut
    return [started.turn_id for started in first_prompts(run_log, cut, {SESSION: first}).values()]


def test_the_first_turn_behind_the_first_event_is_read() -> None:
    other = sessions.started("other", session_id="other")
    items = [
        item(5, sessions.opened(session_id=SESSION)),
        item(6, other, key="other"),
        item(7, turn("a")),
        item(8, turn("b")),
        item(5, other, key="other", partition=2),
    ]
    assert turns_of(items) == ["a"]
    assert turns_of(items, first=4) == turns_of(items, first=6) == []


def test_a_turn_behind_the_moment_is_not_read() -> None:
    items = [item(5, sessions.opened(session_id=SESSION)), item(6, turn("a"))]
    assert (turns_of(items, at=5), turns_of(items, at=6)) == ([], ["a"])


def test_a_large_prompt_is_not_read() -> None:
    opened = item(5, sessions.opened(session_id=SESSION))
    assert turns_of([opened, item(6, turn("a", b"x" * 70_000))]) == []


def test_a_session_of_which_nothing_is_there_has_none() -> None:
    assert turns_of([item(5, sessions.opened(session_id="other"), key="other")]) == []
