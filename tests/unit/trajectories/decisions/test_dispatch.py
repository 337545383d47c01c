"""Dispatches: the worker that a turn goes to, and repeats after a takeover."""

from dataclasses import replace

from consumers.trajectories.decisions import dispatch
from schemas import records as r
from tests.builders.records.content import ids
from tests.builders.records.sessions import completed, dispatched, progressed, started
from tests.builders.trajectories.decisions import context, fleet_with
from tests.builders.trajectories.session_builder import session_after


def test_a_takeover_repeats_the_dispatch_that_may_have_been_lost() -> None:
    built = session_after(started(), dispatched(), progressed(ids(7)))

    ((slot, generate),) = dispatch.repeated(built.session, built.turn(), context())

    assert isinstance(generate, r.GenerateTurn)
    assert (slot, generate.dispatch, generate.completion_ids) == (0, 1, ids(7))


def test_the_next_turn_goes_to_the_worker_that_has_its_prefix() -> None:
    built = session_after(started(), dispatched(worker="v"), completed(ids(7), worker="v"))
    parent = replace(started("b"), parent_turn="a")

    decision = dispatch.first(built.session, parent, b"", context(fleet_with("u", "v")))

    (event,) = decision.events
    assert isinstance(event, r.TurnDispatched)
    assert event.worker == "v"
