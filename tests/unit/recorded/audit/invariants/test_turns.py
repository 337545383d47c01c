"""Turns and their ends."""

from typing import Any

import pytest

from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Record
from tests.builders.auditing.audited_log import AuditedLog
from tests.builders.records import control, replies, sessions
from tests.builders.records.content import ids

BEGUN = (sessions.opened(), sessions.started(), sessions.dispatched())
TASK = "g.0.0"
OF_TASK = (
    sessions.opened(session_id=TASK, group_id="g"),
    sessions.started(session_id=TASK),
    sessions.dispatched(session_id=TASK),
    sessions.interrupted(ids(3), session_id=TASK),
)
ANSWER = replies.answer(turn_id="a")


@pytest.mark.parametrize(
    "end",
    [
        sessions.completed(ids(3)),
        sessions.failed(),
        sessions.failed(epoch=None, dispatch=1, worker="w", incarnation="i"),
        sessions.cancelled(),
        sessions.closed(),
    ],
    ids=lambda end: type(end).__name__,
)
def test_a_turn_with_an_end_is_checked(end: Record) -> None:
    log = AuditedLog().put(*BEGUN).settle()
    assert log.counts("turns") == (0, 1, 0, 0)

    assert log.put(end).settle().counts("turns") == (1, 0, 0, 0)


def test_a_worker_that_ends_a_dispatch_twice_is_a_violation() -> None:
    log = AuditedLog().put(*BEGUN, sessions.completed(ids(3)), sessions.completed(ids(4))).settle()

    [violation] = log.details("turns")
    assert violation.startswith(
        "sessions[0]@4: TurnCompleted ends dispatch 1 of turn a of session s"
    )
    assert log.counts("turns") == (1, 0, 0, 1)


@pytest.mark.parametrize("between", [(), (sessions.completed(ids(3)),), (sessions.closed(),)])
def test_a_turn_that_is_started_again_is_a_violation(between: tuple[Record, ...]) -> None:
    log = AuditedLog().put(*BEGUN, *between, sessions.started()).settle()
    place = f"sessions[0]@{len(BEGUN) + len(between)}"
    assert log.details("turns") == [f"{place}: turn a of session s is started again"]


def test_a_second_end_behind_that_of_its_session_is_a_violation() -> None:
    log = AuditedLog().put(*BEGUN, sessions.completed(ids(3)))
    log.put(sessions.closed(), sessions.finalized()).settle()
    log.put(sessions.completed(ids(3))).settle()

    [violation] = log.details("turns")
    assert violation.startswith(
        "sessions[0]@6: TurnCompleted ends dispatch 1 of turn a of session s"
    )


def test_the_only_end_of_a_dispatch_may_come_behind_that_of_its_session() -> None:
    log = AuditedLog().put(*BEGUN, sessions.closed(), sessions.finalized())
    log.put(sessions.completed(ids(3))).settle()

    assert log.counts("turns") == (1, 0, 0, 0)


def test_ends_that_cross_are_none() -> None:
    """A deadline and a cancellation may pass while the worker writes its end."""
    log = AuditedLog().put(*BEGUN, sessions.cancelled(), sessions.completed(ids(3)))
    log.put(sessions.failed()).settle()

    assert log.counts("turns") == (1, 0, 0, 0)


def test_an_answer_needs_an_accepted_completion() -> None:
    assert AuditedLog().put(*BEGUN, sessions.completed(ids(3)), ANSWER).settle().report.clean

    log = AuditedLog().put(*BEGUN, ANSWER).settle()
    [violation] = log.details("turns")
    assert violation.startswith("replies[0]@0: the answer to turn a of session s has no accepted")


@pytest.mark.parametrize(
    "output",
    [
        sessions.completed(ids(3), worker="v"),
        sessions.completed(ids(3), incarnation="old"),
        sessions.completed(ids(3), dispatch=2),
        sessions.completed(ids(3), token_offset=1),
        sessions.completed(bytes(5), logprobs=bytes(5)),
        sessions.completed(ids(3), logprobs=bytes(8)),
    ],
)
def test_output_that_the_log_does_not_accept_is_no_completion(output: Record) -> None:
    log = AuditedLog().put(*BEGUN, output, ANSWER).settle()
    assert log.counts("turns") == (0, 1, 0, 1)


def test_a_continuation_completes_the_turn() -> None:
    again = sessions.dispatched(dispatch=2, from_offset=1, worker="v")
    rest = sessions.completed(ids(4), token_offset=1, dispatch=2, worker="v")
    log = AuditedLog().put(*BEGUN, sessions.interrupted(ids(3)), again, rest, ANSWER).settle()

    assert log.counts("turns") == (1, 0, 0, 0)


def test_a_dispatch_that_came_too_late_uses_up_its_number() -> None:
    late = sessions.dispatched(dispatch=2, from_offset=0, worker="v")
    third = sessions.dispatched(dispatch=3, from_offset=1, worker="v")
    rest = sessions.completed(ids(4), token_offset=1, dispatch=3, worker="v")
    log = AuditedLog().put(*BEGUN, sessions.progressed(ids(3)), late, third, rest, ANSWER).settle()

    assert log.counts("turns") == (1, 0, 0, 0)


def test_a_late_answer_of_a_session_that_is_over_is_known() -> None:
    log = AuditedLog().put(*BEGUN, sessions.completed(ids(3)), sessions.closed())
    log.put(sessions.finalized()).settle().put(ANSWER).settle()

    assert log.counts("turns")[3] == 0


def test_a_turn_whose_beginning_was_removed_cannot_be_checked() -> None:
    log = AuditedLog().cut().put(sessions.progressed(ids(3)), sessions.completed(ids(4)))
    log.put(replies.answer(turn_id="gone"), ANSWER).settle()

    assert log.counts("turns") == (0, 0, 2, 0)


def test_a_turn_that_its_owner_forgot_is_a_violation() -> None:
    started = sessions.started(deadline_ms=10)
    log = AuditedLog().put(sessions.opened(), started)
    log.put(*(sessions.opened(session_id=str(n), at_ms=n * 10_000) for n in range(60))).settle()

    [violation] = log.details("turns")
    assert violation.startswith("sessions[0]@1: turn a of session s has no end 5")


def test_no_deadline_passes_in_an_outage() -> None:
    log = AuditedLog().put(sessions.opened(), sessions.started(deadline_ms=10))
    log.put(sessions.opened(session_id="t", at_ms=86_400_000)).settle()

    assert log.counts("turns") == (0, 1, 0, 0)


def test_an_answer_that_was_played_back_needs_no_worker() -> None:
    played = sessions.played_back("a")

    assert AuditedLog().put(sessions.opened(), played, ANSWER).settle().report.clean


@pytest.mark.parametrize("begun", [OF_TASK[:2], OF_TASK[:3], OF_TASK])
def test_a_turn_that_is_open_in_a_finished_run_is_a_violation(begun: tuple[Record, ...]) -> None:
    log = AuditedLog().put(*begun, control.finished()).settle()
    assert log.counts("turns") == (0, 1, 0, 0)

    log.ended()
    assert log.details("turns") == [
        "sessions[0]@1: turn a of session g.0.0 has no end, and the run is finished"
    ]
    assert log.counts("turns") == (0, 0, 0, 1)


@pytest.mark.parametrize("changes", [{}, {"group_id": "g"}, {"purpose": "eval"}])
def test_a_turn_of_a_session_that_goes_on_behind_the_end_of_its_run_is_open(
    changes: dict[str, Any],
) -> None:
    begun = sessions.opened(**changes), *BEGUN[1:]
    log = AuditedLog().put(*begun, control.finished()).settle()
    assert log.ended().counts("turns") == (0, 1, 0, 0)


def test_a_turn_that_is_open_in_a_run_that_may_go_on_is_none() -> None:
    lineage = r.LineageStarted(at_ms=0, policy="p", lineage="b", step=1, settings=b"{}")
    resumed = AuditedLog().put(*BEGUN, control.finished(policy="p"), lineage).settle().ended()
    assert resumed.counts("turns") == (0, 1, 0, 0)
    assert AuditedLog().put(*BEGUN).settle().ended().counts("turns") == (0, 1, 0, 0)

    other = r.LineageStarted(at_ms=0, policy="q", lineage="c", step=1, settings=b"{}")
    both = AuditedLog().put(*BEGUN, lineage, other, control.finished(policy="q")).settle().ended()
    assert both.counts("turns") == (0, 1, 0, 0)
