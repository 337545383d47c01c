"""Turns on modelled devices: those given up, and what new weights make them compute again.

More of it is shown by `tests/unit/lab/simulation/test_engine.py` and by the clock engine's.
"""

import pytest

from seamlessflow.infra.device_model.batch import ModelledBatch, ModelledTurn
from seamlessflow.infra.device_model.rates import Rates


class NoPrefixes:
    """A cache that keeps nothing."""

    tokens = 0.0

    def take(self, turn: ModelledTurn) -> float:
        return 0.0

    def keep(self, turn: ModelledTurn) -> None: ...

    def release(self, turn: ModelledTurn) -> None: ...

    def shrink(self, tokens: float) -> None: ...

    def clear(self) -> None: ...


def batch(*turns: ModelledTurn, rows: int = 8) -> ModelledBatch[ModelledTurn]:
    """Return a batch of these turns, with a second for each row of a pass and a prompt's token."""
    made: ModelledBatch[ModelledTurn] = ModelledBatch(
        Rates(row_s=1, prompt_s=1, rows=rows), NoPrefixes()
    )
    for turn in turns:
        made.add(turn)
    made.fill()
    return made


def test_a_turn_that_is_given_up_leaves_its_row_to_another() -> None:
    first, second, third = (ModelledTurn(context=0, left=9) for _ in range(3))
    modelled = batch(first, second, third, rows=1)
    modelled.clock.advance(2)

    modelled.remove(second)
    modelled.remove(first)

    assert modelled.fill() == [third]
    assert (modelled.clock.rows, modelled.clock.context, modelled.reserved) == (1, 0, 9)
    assert modelled.first_end == pytest.approx(2 + 9)


def test_no_prompt_is_left_when_the_last_turn_is_given_up() -> None:
    turn = ModelledTurn(context=100, left=1)
    modelled = batch(turn)
    modelled.clock.advance(30)

    modelled.remove(turn)

    assert modelled.clock.prompt_s == 0
    assert (modelled.clock.full_batch_s, modelled.clock.recomputing_s) == (30, 0)


def test_a_prompt_that_new_weights_interrupt_is_computed_once_more_as_far_as_it_had_come() -> None:
    modelled = batch(ModelledTurn(context=100, left=1))
    modelled.clock.advance(30)

    modelled.recompute()
    modelled.clock.advance(30 + 100)

    assert modelled.clock.prompt_s == 0
    assert modelled.clock.full_batch_s == 100
    assert modelled.clock.recomputing_s == 30
