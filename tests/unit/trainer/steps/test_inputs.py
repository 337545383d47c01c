"""Input of a step: micro-batches with the units and the weights that the loss needs."""

from typing import Any

import pytest

from seamlessflow.trainer.backends.backend import StepInput
from seamlessflow.trainer.data.batch import Batch
from seamlessflow.trainer.settings import TrainerSettings
from seamlessflow.trainer.steps.inputs import step_input
from tests.builders.trainer.groups import two_groups


def input_with(**loss: Any) -> StepInput:
    settings = TrainerSettings(trainer={"micro_batch_tokens": 16, "loss": loss})
    return step_input(settings, Batch(0, two_groups()), 1, 0, ())


@pytest.mark.parametrize("level", ["turn", "session"])
def test_a_micro_batch_holds_whole_units_of_the_loss(level: str) -> None:
    step = input_with(surrogate="gspo", ratio_level=level)
    units = [
        set((batch.turns_N if level == "turn" else batch.sessions_N).tolist())
        for batch in step.micro_batches
    ]
    assert len(units) > 1
    assert sum(map(len, units)) == len(set().union(*units))


def test_a_loss_of_tokens_divides_a_session_by_its_chains() -> None:
    held = [set(batch.sessions_N.tolist()) for batch in input_with().micro_batches]
    assert sum(map(len, held)) > 4


@pytest.mark.parametrize("aggregation", ["token_mean", "sequence_mean"])
def test_the_weights_of_a_mean_add_up_to_one_over_all_micro_batches(aggregation: str) -> None:
    step = input_with(aggregation=aggregation)
    weights = [weight for batch in step.micro_batches for weight in batch.weights_N.tolist()]
    assert sum(weights) == pytest.approx(1)
    assert (len(set(weights)) == 1) == (aggregation == "token_mean")


def test_a_batch_without_a_chain_has_no_input() -> None:
    for aggregation in ({}, {"aggregation": "constant", "constant_length": 4}):
        settings = TrainerSettings(trainer={"loss": aggregation})
        assert step_input(settings, Batch(0, ()), 1, 0, ()).micro_batches == []
