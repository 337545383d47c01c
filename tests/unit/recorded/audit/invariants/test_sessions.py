"""Finalized sessions and their trajectories."""

import pytest

from seamlessflow.schemas.records import Record
from seamlessflow.schemas.topics import SESSIONS, TRAJECTORIES
from tests.builders.auditing.audited_log import AuditedLog, trajectory, whole
from tests.builders.records import control, sessions

EVENTS = (sessions.opened(), sessions.closed(), sessions.finalized())
TASK = "g.0.0"
OF_TASK = (
    sessions.opened(session_id=TASK, group_id="g"),
    sessions.closed(session_id=TASK),
    sessions.finalized(session_id=TASK),
)


def test_a_session_with_its_trajectory_is_checked() -> None:
    assert whole(AuditedLog(), EVENTS).settle().counts("sessions") == (1, 0, 0, 0)


def test_a_finalized_session_is_open_until_the_managers_progress_covers_it() -> None:
    log = AuditedLog().put(*EVENTS).settle(covered=3)
    assert log.counts("sessions") == (0, 1, 0, 0)

    log.settle(covered=3)
    [violation] = log.details("sessions")
    assert violation == "sessions[0]@2: session s is finalized here and not on trajectories"
    assert log.counts("sessions") == (0, 0, 0, 1)


def test_a_later_trajectory_of_the_partition_covers_it_too() -> None:
    log = AuditedLog().put(*EVENTS)
    later = [
        builder(session_id="t")
        for builder in (sessions.opened, sessions.closed, sessions.finalized)
    ]
    log.put(*later, trajectory("t", 3, 5)).settle().settle()

    assert log.counts("sessions") == (1, 0, 0, 1)


def test_an_equal_copy_is_none_and_another_content_is_a_violation() -> None:
    log = whole(AuditedLog(), EVENTS).put(trajectory(last=2))
    assert log.settle().counts("sessions") == (1, 0, 0, 0)
    assert log.put(trajectory(last=2)).settle().report.clean

    log.put(trajectory(last=2, status="complete")).settle()
    [violation] = log.details("sessions")
    assert violation.startswith("trajectories[0]@3: this trajectory of session s differs")


def test_two_contents_are_a_violation_also_before_the_session_is_judged() -> None:
    log = whole(AuditedLog(), EVENTS).put(trajectory(last=2, status="complete")).settle()
    assert log.counts("sessions") == (1, 0, 0, 1)


def test_a_trajectory_names_where_its_events_stand() -> None:
    log = AuditedLog().put(*EVENTS, trajectory(first=1, last=2)).settle()
    [violation] = log.details("sessions")
    assert violation.startswith("trajectories[0]@0: the trajectory of session s names sessions[0]")


def test_a_trajectory_of_a_session_that_is_not_finalized_is_a_violation() -> None:
    log = AuditedLog().put(sessions.opened(), trajectory()).settle()
    assert log.counts("sessions") == (0, 1, 0, 1)


def test_the_end_by_a_manager_that_had_lost_the_partition_is_none() -> None:
    late = (sessions.opened(epoch=2), sessions.closed(epoch=2), sessions.finalized(epoch=1))
    log = AuditedLog().put(sessions.claimed(2), *late, trajectory(first=1, last=3)).settle()
    assert "no SessionFinalized that counts" in log.details("sessions")[0]


def test_an_id_is_used_once() -> None:
    again = "sessions[0]@3: session s is opened again, although it was finalized"
    log = whole(AuditedLog(), EVENTS).settle().put(sessions.opened()).settle()
    assert log.details("sessions") == [again]

    at_once = whole(AuditedLog(), EVENTS).put(sessions.opened()).settle()
    assert at_once.details("sessions") == [again]
    assert at_once.counts("sessions") == (1, 0, 0, 1)


@pytest.mark.parametrize("between", [(), (sessions.started(),), (sessions.closed(),)])
def test_an_id_is_used_once_also_while_its_session_is_open(between: tuple[Record, ...]) -> None:
    log = AuditedLog().put(sessions.opened(), *between, sessions.opened(policy="q")).settle()
    place = f"sessions[0]@{len(between) + 1}"
    assert log.details("sessions") == [f"{place}: session s is opened again, although it is open"]


def test_an_opening_by_a_manager_that_had_lost_the_partition_uses_no_id() -> None:
    late = sessions.opened(epoch=1)
    log = AuditedLog().put(sessions.claimed(2), late, sessions.opened(epoch=2)).settle()
    assert log.report.clean


def test_a_session_whose_beginning_was_removed_cannot_be_checked() -> None:
    log = AuditedLog().cut(SESSIONS.name).put(*EVENTS[1:], trajectory(first=9, last=101))
    assert log.settle(covered=900).settle().counts("sessions") == (0, 0, 1, 0)

    gone = AuditedLog().cut(SESSIONS.name).put(trajectory(first=9, last=50)).settle()
    assert gone.counts("sessions") == (0, 0, 1, 0)


def test_a_trajectory_that_retention_removed_cannot_be_checked() -> None:
    log = AuditedLog().cut(TRAJECTORIES.name).put(*EVENTS)
    assert log.settle(covered=3).settle(covered=3).counts("sessions") == (0, 0, 1, 0)


def test_a_session_that_waits_on_after_its_wait_is_a_violation() -> None:
    log = AuditedLog().put(sessions.opened(), sessions.closed(await_reward_until_ms=1_000))
    others = (sessions.opened(session_id=str(n), at_ms=n * 10_000) for n in range(60))
    log.put(*others).settle().put(sessions.finalized(at_ms=700_000)).settle()

    [violation] = log.details("sessions")
    assert violation.startswith("sessions[0]@1: session s, closed here, is not finalized 5")


def test_promises_of_a_recording_cannot_be_checked_without_its_events() -> None:
    log = AuditedLog(recorded=True).put(trajectory(), trajectory("t")).settle()
    assert log.counts("sessions") == (0, 0, 2, 0)


@pytest.mark.parametrize(
    ("events", "shown"),
    [
        (OF_TASK[:1], "sessions[0]@0: session g.0.0, opened here, is not finalized"),
        (OF_TASK[:2], "sessions[0]@0: session g.0.0, opened here, is not finalized"),
        (OF_TASK, "sessions[0]@2: session g.0.0 is finalized here and not on trajectories"),
        (EVENTS, "sessions[0]@2: session s is finalized here and not on trajectories"),
    ],
)
def test_a_session_that_is_open_in_a_finished_run_is_a_violation(
    events: tuple[Record, ...], shown: str
) -> None:
    log = AuditedLog().put(*events, control.finished()).settle()
    assert log.counts("sessions") == (0, 1, 0, 0)

    assert log.ended().details("sessions") == [f"{shown}, and the run is finished"]
    assert log.counts("sessions") == (0, 0, 0, 1)


def test_a_session_that_is_open_in_a_run_that_was_stopped_is_none() -> None:
    assert AuditedLog().put(*EVENTS).settle().ended().counts("sessions") == (0, 1, 0, 0)


@pytest.mark.parametrize(
    "events",
    [
        EVENTS[:1],
        EVENTS[:2],
        (sessions.opened(group_id="g", sample=1),),
        (sessions.opened(session_id=TASK, group_id="g", purpose="eval"),),
    ],
)
def test_a_session_that_goes_on_behind_the_end_of_its_run_is_open(
    events: tuple[Record, ...],
) -> None:
    log = AuditedLog().put(*events, control.finished()).settle()
    assert log.ended().counts("sessions") == (0, 1, 0, 0)
