"""Acknowledged commands and their events."""

from typing import Any

import pytest

from seamlessflow.schemas.records import Record
from seamlessflow.schemas.topics import REQUESTS, SESSIONS
from tests.builders.auditing.audited_log import KEPT_LONG_MS, AuditedLog
from tests.builders.records import commands, replies, sessions

REWARD = commands.assign_reward()


def answered(command: Record) -> Record:
    return replies.answered(command.command_id)  # type: ignore[attr-defined]


@pytest.mark.parametrize("event_first", [True, False])
def test_a_command_with_its_event_is_checked_in_whichever_order_the_topics_are_read(
    event_first: bool,
) -> None:
    records = [REWARD, sessions.rewarded(command_id="r"), answered(REWARD)]
    log = AuditedLog().put(*(records[1:] + records[:1] if event_first else records)).settle()

    assert log.counts("commands") == (1, 0, 0, 0)


def test_an_answered_command_without_an_event_is_a_violation() -> None:
    log = AuditedLog().put(sessions.opened(), REWARD, answered(REWARD)).settle()

    assert log.counts("commands") == (0, 0, 0, 1)
    [violation] = log.details("commands")
    assert violation.startswith("replies[0]@0: AssignReward r of session s at requests[0]@0 has no")
    assert not log.report.clean


def test_a_violation_is_counted_once_however_often_the_answer_is_repeated() -> None:
    log = AuditedLog().put(REWARD, answered(REWARD)).settle().put(answered(REWARD)).settle()

    assert log.counts("commands") == (0, 0, 0, 1)


def test_a_command_that_is_not_acknowledged_is_open() -> None:
    log = AuditedLog().put(REWARD).settle(requests=0)

    assert log.counts("commands") == (0, 1, 0, 0)


def test_a_command_whose_offset_is_committed_needs_an_event_without_an_answer_too() -> None:
    log = AuditedLog().put(commands.request_turn()).settle(requests=1)

    [violation] = log.details("commands")
    assert violation.startswith("requests[0]@0: RequestTurn request-a of session s")


def test_an_event_of_a_manager_that_had_lost_the_partition_is_none() -> None:
    late = sessions.rewarded(command_id="r", epoch=1)
    log = AuditedLog().put(sessions.claimed(2), REWARD, late, answered(REWARD)).settle()

    assert log.counts("commands") == (0, 0, 0, 1)


def test_a_refusal_is_an_event() -> None:
    refused = sessions.refused(command_id="r")
    log = AuditedLog().put(REWARD, refused, answered(REWARD)).settle()

    assert log.counts("commands") == (1, 0, 0, 0)


def test_a_question_has_no_event() -> None:
    question = commands.count_tokens()
    log = AuditedLog().put(question, answered(question)).settle(requests=1)

    assert log.counts("commands") == (0, 0, 0, 0)


@pytest.mark.parametrize(
    ("again", "event"),
    [
        (commands.open_session(idempotency_key="k"), sessions.opened(idempotency_key="k")),
        (commands.close_session(), sessions.closed()),
        (commands.close_session(idempotency_key="k"), sessions.closed(idempotency_key="k")),
        (commands.assign_reward(), sessions.rewarded()),
    ],
    ids=str,
)
def test_a_repeated_call_needs_the_event_of_the_first_one(again: Record, event: Record) -> None:
    with_first = AuditedLog().put(event, again, answered(again)).settle()
    without = AuditedLog().put(again, answered(again)).settle()

    assert with_first.counts("commands") == (1, 0, 0, 0)
    assert without.counts("commands") == (0, 0, 0, 1)


@pytest.mark.parametrize("change", [{"idempotency_key": "other"}, {"session_id": "t"}], ids=str)
def test_another_call_is_no_repeat(change: dict[str, Any]) -> None:
    again = commands.close_session(**change)
    answer = replies.answered("c", session_id=again.session_id)
    log = AuditedLog().put(sessions.closed(), again, answer).settle()

    assert log.counts("commands") == (0, 0, 0, 1)


def test_a_command_whose_event_retention_may_have_removed_cannot_be_checked() -> None:
    log = AuditedLog().cut(SESSIONS.name).put(REWARD, answered(REWARD)).put(sessions.opened())
    assert log.settle().counts("commands") == (0, 0, 1, 0)
    assert log.report.clean

    log.put(REWARD, at_ms=KEPT_LONG_MS).put(commands.close_session(), at_ms=KEPT_LONG_MS)
    log.put(replies.answered("c")).settle()
    assert log.counts("commands")[3] == 1


def test_an_answer_needs_a_command() -> None:
    assert AuditedLog().put(replies.answered("c")).settle().counts("commands") == (0, 0, 0, 1)
    cut = AuditedLog().cut(REQUESTS.name).put(replies.answered("c")).settle()
    assert cut.counts("commands") == (0, 0, 1, 0)
