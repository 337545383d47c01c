"""Turns that wait at their worker for newer weights."""

import pytest

from seamlessflow.producers.rollout.turns.serving import HELD_MS
from seamlessflow.schemas.records import TurnInterrupted
from tests.builders.records.prompts import generate
from tests.builders.rollout.serving_setup import NOW, ServingSetup


@pytest.fixture
def setup() -> ServingSetup:
    return ServingSetup().serve()


def test_a_turn_that_needs_newer_weights_waits_for_them(setup: ServingSetup) -> None:
    setup.send(generate(min_version=7))
    setup.send(generate(turn_id="later", min_version=8))
    assert list(setup.engine.submitted) == ["turn/1"]
    assert setup.serving.waits

    setup.serving.begin_overdue(NOW + HELD_MS, loads=True)
    assert list(setup.engine.submitted) == ["turn/1"]

    setup.serving.adopt(8, NOW + HELD_MS)
    assert list(setup.engine.submitted) == ["turn/1", "later/1"]
    assert not setup.serving.waits


def test_a_turn_does_not_wait_long_for_weights_of_which_nothing_was_read(
    setup: ServingSetup,
) -> None:
    setup.send(generate(min_version=8))

    setup.serving.begin_overdue(NOW + HELD_MS - 1, loads=False)
    assert not setup.engine.submitted
    setup.serving.begin_overdue(NOW + HELD_MS, loads=False)
    assert list(setup.engine.submitted) == ["turn/1"]


def test_a_turn_that_waits_for_weights_is_handed_back_without_tokens(setup: ServingSetup) -> None:
    setup.send(generate(min_version=8))

    assert setup.serving.leave("preempted", NOW) == 1

    (back,) = setup.written
    assert isinstance(back, TurnInterrupted)
    assert not back.token_ids
    assert not setup.serving.waits
