"""Rules of which dead letters may be retried."""

from dataclasses import replace

import pytest

from seamlessflow.recorded.dead_letters.letters import decoded_letter
from seamlessflow.recorded.dead_letters.retrying import REFUSED, refusal
from seamlessflow.schemas.codec import UndecodableRecord
from seamlessflow.schemas.records import Record
from seamlessflow.schemas.topics import LETTERED, REQUESTS, TASKS
from tests.builders.letters import letter
from tests.builders.records import commands, sessions
from tests.builders.records.tasks import task

NOW_MS = 5_000


def test_only_queues_of_independent_records_are_retried() -> None:
    assert LETTERED.keys() - REFUSED.keys() == {REQUESTS.name, TASKS.name}
    assert REFUSED.keys() < LETTERED.keys()


@pytest.mark.parametrize(
    ("topic", "record"),
    [
        ("tasks", task(issued_at_ms=0, deadline_ms=NOW_MS + 1)),
        ("requests", commands.close_session(expires_at_ms=NOW_MS + 1)),
    ],
)
def test_what_is_readable_and_still_wanted_is_retried(topic: str, record: Record) -> None:
    assert refusal(letter(topic, record), NOW_MS) == ""


@pytest.mark.parametrize(
    ("topic", "record", "reason"),
    [
        ("tasks", task(issued_at_ms=0, deadline_ms=NOW_MS), "its deadline is over"),
        ("requests", commands.close_session(expires_at_ms=NOW_MS), "the command has expired"),
    ],
)
@pytest.mark.parametrize("force", [False, True])
def test_what_comes_too_late_is_refused(
    topic: str, record: Record, reason: str, force: bool
) -> None:
    assert reason in refusal(letter(topic, record), NOW_MS, force)


def test_an_undecodable_letter_is_sent_by_force_only() -> None:
    garbage = letter("tasks", b"garbage")

    assert "--force" in refusal(garbage, NOW_MS)
    assert refusal(garbage, NOW_MS, force=True) == ""


@pytest.mark.parametrize("topic", sorted(REFUSED))
def test_a_log_takes_no_copy_even_by_force(topic: str) -> None:
    assert refusal(letter(topic, sessions.opened()), NOW_MS, force=True) == REFUSED[topic]


def test_what_another_program_wrote_has_no_place_to_go() -> None:
    foreign = replace(letter("tasks", b"x"), source=None)

    assert "another program" in refusal(foreign, NOW_MS, force=True)


def test_a_record_of_another_topic_and_a_key_that_no_reader_takes_are_garbage() -> None:
    with pytest.raises(UndecodableRecord, match="SessionOpened does not belong on tasks"):
        decoded_letter(letter("tasks", sessions.opened()))
    with pytest.raises(UndecodableRecord, match="not UTF-8"):
        decoded_letter(replace(letter("tasks", task(issued_at_ms=0)), key=b"\xff"))
