"""Dispatches: the worker that a turn goes to, and repeats after a takeover."""

from dataclasses import replace
from typing import Any

import numpy as np

from seamlessflow.consumers.trajectories.decisions import dispatch
from seamlessflow.schemas import records as r
from tests.builders.records.content import ids
from tests.builders.records.sessions import (
    completed,
    dispatched,
    interrupted,
    progressed,
    started,
)
from tests.builders.trajectories.decisions import context, fleet_with
from tests.builders.trajectories.session_builder import finished, session_after


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


def test_a_recycled_turn_keeps_the_ids_and_log_probs_of_its_first_part() -> None:
    """An extra group goes on over a weight update on another worker; holds invariant I3."""
    first, last = (np.array(logprobs, "<f4").tobytes() for logprobs in ([-0.5, -1.5], [-2.5]))
    built = session_after(
        started(), dispatched(), interrupted(ids(7, 8), logprobs=first, spans=(span(0, 3),))
    )

    decision = dispatch.again(built.session, built.turn(), "interrupted", context(fleet_with("v")))
    ((_, generate),) = decision.prompts
    assert isinstance(generate, r.GenerateTurn)
    assert (generate.dispatch, generate.completion_ids) == (2, ids(7, 8))
    on: dict[str, Any] = {"dispatch": 2, "worker": "v", "token_offset": 2}
    built.apply(*decision.events, completed(ids(9), logprobs=last, spans=(span(2, 4),), **on))

    made = finished(built)
    (node,) = (
        candidate for candidate in made.nodes if candidate.turn_id == "a" and candidate.length == 3
    )
    part = slice(4 * node.start, 4 * (node.start + node.length))
    assert made.tokens[part] == ids(7, 8, 9)
    assert made.logprobs[part] == first + last
    assert node.masked_reason == ""


def span(start: int, version: int) -> r.VersionSpan:
    return r.VersionSpan(start=start, version_min=version, version_max=version)
