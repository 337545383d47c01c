"""Groups of equal rewards that count: their place in the means of a loss, and its other terms."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from seamlessflow.trainer.backends.torch_backend import TorchBackend
from seamlessflow.trainer.data.batch import Batch, prepare
from seamlessflow.trainer.data.grouping import Group
from seamlessflow.trainer.data.staleness import StepClock
from seamlessflow.trainer.settings import TrainerSection, TrainerSettings
from seamlessflow.trainer.steps.annotation import annotated
from seamlessflow.trainer.steps.inputs import batch_rules, step_input, step_updates
from tests.builders.trainer.groups import group
from tests.builders.trainer.models import write_tiny

NOW = StepClock({}, now=3)
UNEQUAL = [group("g-0", 1.0, 0.0, length=5), group("g-1", 0.0, 1.0, 1.0)]
EQUAL = [group("g-2", 1.0, 1.0, length=2), group("g-3", 0.0, 0.0, 0.0), group("g-4", 0.5, 0.5)]
AGGREGATIONS = [
    {"aggregation": "token_mean"},
    {"aggregation": "sequence_mean"},
    {"aggregation": "constant", "constant_length": 7},
]
TERMS = [{}, {"kl": 0.3}, {"kl": 0.3, "kl_estimator": "k2"}, {"entropy": 0.1}]
COUNT: dict[str, str] = {"zero_variance": "count"}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny(tmp_path_factory.mktemp("other"), seed=1)


def section(loss: dict[str, Any], reference: Path, **more: Any) -> TrainerSettings:
    settings = {"device": "cpu", "threads": 1, "reference": reference, "loss": loss, **more}
    return TrainerSettings(trainer=TrainerSection.model_validate(settings))


def batch(settings: TrainerSettings, groups: list[Group]) -> Batch:
    rules = batch_rules(settings)
    return Batch(0, tuple(prepare(made, NOW, rules) for made in groups))


def gradient(settings: TrainerSettings, groups: list[Group], model: Path) -> dict[str, Tensor]:
    backend = TorchBackend(model, settings.trainer)
    ready = annotated(settings.trainer, batch(settings, groups), backend)
    gradients: dict[str, Tensor] = {}
    for so_far in backend.gradients(step_input(settings, ready, 3, 0, ())):
        gradients = {name: tensor.clone() for name, tensor in so_far.items()}
    return gradients


@pytest.mark.parametrize("term", TERMS, ids=str)
@pytest.mark.parametrize("aggregation", AGGREGATIONS, ids=lambda case: str(case["aggregation"]))
def test_a_group_that_counts_changes_no_gradient(
    model: Path, reference: Path, aggregation: dict[str, Any], term: dict[str, Any]
) -> None:
    loss, groups = {**aggregation, **term}, [*UNEQUAL, *EQUAL]
    wanted = gradient(section(loss, reference, filters={}), groups, model)
    gradients = gradient(section(loss, reference, filters=COUNT), groups, model)
    assert gradients.keys() == wanted.keys()
    for name, value in wanted.items():
        torch.testing.assert_close(gradients[name], value, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("term", [{"kl": 0.3}, {"entropy": 0.1}], ids=str)
def test_a_batch_of_equal_rewards_is_trained_by_the_other_terms_of_the_loss(
    model: Path, reference: Path, term: dict[str, Any]
) -> None:
    gradients = gradient(section(term, reference, filters=COUNT), EQUAL, model)
    assert sum(float(tensor.square().sum()) for tensor in gradients.values()) > 0


def test_nothing_is_computed_of_tokens_that_no_gradient_comes_from(reference: Path) -> None:
    plain = batch(section({}, reference, filters=COUNT), EQUAL)
    assert (plain.chains(), len(plain.counted())) == ([], 7)
    termed = batch(section({"kl": 0.1}, reference, filters=COUNT), EQUAL)
    assert (len(termed.chains()), termed.counted()) == (7, [])
    assert [prepared.filtered for prepared in termed.groups] == ["zero_variance"] * 3
    assert not any(prepared.credited for prepared in termed.groups)


def test_a_group_that_is_dropped_is_in_no_mean(reference: Path) -> None:
    settings = section({"kl": 0.1}, reference, filters={"zero_variance": "drop"})
    dropped = batch(settings, EQUAL)
    assert (dropped.chains(), dropped.counted()) == ([], [])


def test_a_part_of_a_batch_without_a_trained_token_is_no_update(reference: Path) -> None:
    settings = section({}, reference, filters=COUNT, mini_batches=3)
    settings = settings.model_copy(
        update={"run": settings.run.model_copy(update={"groups_per_step": 5})}
    )
    groups = batch(settings, [*UNEQUAL, *EQUAL])
    made = step_updates(settings, groups, 3, 0, ())
    assert 1 <= len(made) <= 2
    trained = sorted({chain.session_id.split(".")[0] for update in made for chain in update.chains})
    assert trained == ["g-0", "g-1"]
    (nothing,) = step_updates(settings, replace(groups, groups=groups.groups[2:]), 3, 0, ())
    assert nothing.input.micro_batches == []
