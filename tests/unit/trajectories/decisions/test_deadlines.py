"""Deadlines that pass, each with the event that it leads to."""

from seamlessflow.consumers.trajectories.decisions import deadlines
from seamlessflow.schemas import records as r
from tests.builders.records.content import ids
from tests.builders.records.sessions import closed, dispatched, progressed, started
from tests.builders.trajectories.decisions import context, fleet_with, kinds
from tests.builders.trajectories.session_builder import session_after


def test_a_reward_that_never_comes_does_not_hold_the_session_for_ever() -> None:
    """Holds invariant I8."""
    built = session_after(closed(await_reward_until_ms=9_000))

    assert deadlines.due_ms(built.session) == 9_000
    assert deadlines.overdue(built.session, context(now_ms=8_999)).events == []
    assert kinds(deadlines.overdue(built.session, context(now_ms=9_000)).events) == [
        "SessionFinalized"
    ]


def test_a_turn_past_its_deadline_fails_and_its_worker_is_told() -> None:
    """Holds invariant I8."""
    built = session_after(started(), dispatched())

    decision = deadlines.overdue(built.session, context(now_ms=60_000))

    assert kinds(decision.events) == ["TurnFailed"]
    assert kinds([prompt for _, prompt in decision.prompts]) == ["CancelGeneration"]


def test_a_turn_without_progress_goes_to_a_worker_again() -> None:
    built = session_after(started(), dispatched(), progressed(ids(7)))
    fleet = fleet_with("v")

    assert deadlines.due_ms(built.session) == 1_020
    decision = deadlines.overdue(built.session, context(fleet, now_ms=1_020))

    (event,) = decision.events
    assert isinstance(event, r.TurnDispatched)
    assert (event.dispatch, event.from_offset, event.worker) == (2, 1, "v")


def test_a_turn_without_progress_leaves_the_worker_that_lags_however_idle_that_seems() -> None:
    """A worker that reads its slot late has few turns, so the least load alone would find it."""
    built = session_after(started(), dispatched(worker="w"), progressed(ids(7)))
    fleet = fleet_with("w", "busy")
    for _ in range(9):
        fleet.add_turn("busy")

    decision = deadlines.overdue(built.session, context(fleet, now_ms=1_020))

    (event,) = decision.events
    assert isinstance(event, r.TurnDispatched) and event.worker == "busy"
    ((_, stop), (_, generate)) = decision.prompts
    assert isinstance(stop, r.CancelGeneration) and stop.worker == "w"
    assert isinstance(generate, r.GenerateTurn) and generate.worker == "busy"


def test_the_only_worker_gets_its_turn_without_progress_again() -> None:
    built = session_after(started(), dispatched(worker="w"), progressed(ids(7)))

    (event,) = deadlines.overdue(built.session, context(fleet_with("w"), now_ms=1_020)).events

    assert isinstance(event, r.TurnDispatched) and event.worker == "w"


def test_an_idle_session_is_closed_by_an_event() -> None:
    decision = deadlines.overdue(session_after().session, context(now_ms=100_000))

    assert kinds(decision.events) == ["SessionClosed", "SessionFinalized"]
