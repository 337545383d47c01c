"""Updates of a step: parts of its batch, and passes over it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from seamlessflow.infra.settings import SharedRunSection
from seamlessflow.trainer.backends.optimizer_state import WEIGHTS
from seamlessflow.trainer.backends.torch_backend import TorchBackend
from seamlessflow.trainer.data.batch import Batch
from seamlessflow.trainer.data.chains import Column, credited
from seamlessflow.trainer.settings import TrainerSection, TrainerSettings
from seamlessflow.trainer.steps.annotation import annotated, needed
from seamlessflow.trainer.steps.inputs import Update, of_step, step_input, step_updates
from tests.builders.trainer.groups import two_groups
from tests.builders.trainer.models import write_tiny

TWICE = {"mini_batches": 2, "epochs": 2}


def settings(**trainer: Any) -> TrainerSettings:
    return TrainerSettings(
        trainer={"device": "cpu", "threads": 1, "micro_batch_tokens": 16, **trainer}
    )


def batch(step: int = 0) -> Batch:
    """Return two groups of two sessions with two chains each, and an advantage for each chain."""
    groups = [
        (prepared, [credited(chain, place + 1.0) for place, chain in enumerate(prepared.chains)])
        for prepared in two_groups()
    ]
    return Batch(
        step, tuple(type(prepared)(prepared.group, tuple(chains)) for prepared, chains in groups)
    )


def updates(step: int = 0, **trainer: Any) -> list[Update]:
    return step_updates(settings(**trainer), batch(step), 1, 0, ())


def sessions(update: Update) -> list[str]:
    return sorted({chain.session_id for chain in update.chains})


def test_each_epoch_trains_every_group_once_and_whole() -> None:
    made = updates(**TWICE)
    assert [update.epoch for update in made] == [0, 0, 1, 1]
    for epoch in range(2):
        held = [sessions(update) for update in made if update.epoch == epoch]
        assert sorted(held) == [["a", "b"], ["c", "d"]]


def test_the_order_of_an_epoch_depends_on_seed_and_step_alone() -> None:
    def order(step: int, seed: int) -> list[list[str]]:
        return [sessions(update) for update in updates(step, seed=seed, mini_batches=2, epochs=4)]

    assert order(3, 7) == order(3, 7)
    assert len({str(order(step, 7)) for step in range(8)}) > 1
    assert len({str(order(3, seed)) for seed in range(8)}) > 1


def test_an_update_is_a_mean_over_its_own_tokens() -> None:
    for update in updates(**TWICE):
        weights = [
            weight
            for micro_batch in update.input.micro_batches
            for weight in micro_batch.weights_N.tolist()
        ]
        assert sum(weights) == pytest.approx(1)


def test_engines_are_measured_by_the_first_update_alone() -> None:
    first, *later = updates(**TWICE)
    assert first.input.version == 1
    assert {update.input.version for update in later} == {-1}


def test_of_fewer_groups_than_parts_each_is_an_update() -> None:
    one_group = Batch(0, batch().groups[:1])
    made = step_updates(settings(**TWICE), one_group, 1, 0, ())
    assert [sessions(update) for update in made] == [["a", "b"]] * 2
    nothing = step_updates(settings(**TWICE), Batch(0, ()), 1, 0, ())
    assert [update.input.micro_batches for update in nothing] == [[], []]


def test_more_parts_than_groups_of_a_batch_are_refused() -> None:
    with pytest.raises(ValueError, match=r"trainer\.mini_batches must not exceed run\.groups_per_"):
        TrainerSettings(
            run=SharedRunSection(groups_per_step=2), trainer=TrainerSection(mini_batches=3)
        )


def test_metrics_of_a_step_are_means_of_its_updates_and_sums_of_what_was_counted() -> None:
    metrics = of_step([{"loss": 1.0, "mismatch_tokens": 4, "mismatch_max": 2.0}, {"loss": 3.0}])
    assert metrics == {"updates": 2, "loss": 2.0, "mismatch_tokens": 4, "mismatch_max": 2.0}
    assert of_step([{"loss": 1.0}]) == {"loss": 1.0}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny(tmp_path_factory.mktemp("tiny"))


def trained(
    model: Path, **trainer: Any
) -> tuple[dict[str, np.ndarray[Any, Any]], dict[str, float]]:
    """Return weights after a step and its metrics."""
    run_settings = settings(**trainer)
    backend = TorchBackend(model, run_settings.trainer)
    backend.load(None, 0)
    backend.acquire()
    ready = annotated(run_settings.trainer, batch(), backend)
    made = step_updates(run_settings, ready, 1, 0, ())
    metrics = of_step([backend.train(update.input) for update in made])
    return {name: part.values.numpy() for name, part in backend.state()[WEIGHTS].items()}, metrics


LOSSES = [
    {},
    {"surrogate": "ppo_clip", "correction": "tis"},
    {"surrogate": "gspo", "correction": "icepop", "aggregation": "sequence_mean"},
]


@pytest.mark.parametrize("loss", LOSSES)
def test_a_step_of_several_updates_is_the_same_again_and_in_each_layout(
    model: Path, loss: dict[str, str]
) -> None:
    wanted, metrics = trained(model, loss=loss, **TWICE)
    again, _ = trained(model, loss=loss, **TWICE)
    assert metrics["updates"] == 4
    assert all(np.array_equal(again[name], value) for name, value in wanted.items())
    for layout in ("packed", "tree"):
        weights, _ = trained(model, loss=loss, layout=layout, **TWICE)
        for name, value in wanted.items():
            np.testing.assert_allclose(weights[name], value, rtol=1e-6, atol=1e-6)


def test_two_epochs_without_a_correction_are_the_same_update_twice(model: Path) -> None:
    run_settings = settings()
    backend = TorchBackend(model, run_settings.trainer)
    backend.load(None, 0)
    backend.acquire()
    (only,) = step_updates(run_settings, batch(), 1, 0, ())
    for _ in range(2):
        backend.train(only.input)
    weights, _ = trained(model, epochs=2)
    for name, part in backend.state()[WEIGHTS].items():
        assert np.array_equal(weights[name], part.values.numpy())


def test_two_mini_batches_are_two_steps_that_keep_the_policy_before_the_first(model: Path) -> None:
    loss = {"surrogate": "ppo_clip", "correction": "tis"}
    weights, _ = trained(model, loss=loss, mini_batches=2)
    parts = [sessions(update) for update in updates(loss=loss, mini_batches=2)]
    backend = TorchBackend(model, settings(loss=loss).trainer)
    backend.load(None, 0)
    backend.acquire()
    ready = annotated(settings(loss=loss, mini_batches=2).trainer, batch(), backend)
    for part in parts:
        (group,) = (
            prepared
            for prepared in ready.groups
            if {chain.session_id for chain in prepared.chains} == {*part}
        )
        backend.train(step_input(settings(loss=loss), replace(ready, groups=(group,)), 1, 0, ()))
    for name, kept in backend.state()[WEIGHTS].items():
        assert np.array_equal(weights[name], kept.values.numpy())


def test_a_ratio_is_to_the_weights_before_the_step(model: Path) -> None:
    """So only the second update of a step is clipped, of bounds that nothing passes unmoved."""
    tight = {"surrogate": "ppo_clip", "correction": "tis", "clip_low": 1e-9, "clip_high": 1e-9}
    fast = {"lr": 0.1}
    _, once = trained(model, loss={**tight, "cap": 1e9}, optimizer=fast)
    _, twice = trained(model, loss={**tight, "cap": 1e9}, optimizer=fast, epochs=2)
    assert once["clip_fraction"] == 0
    assert twice["clip_fraction"] > 0


def test_a_loss_needs_log_probs_before_the_step_only_in_several_updates_with_a_correction() -> None:
    tis = {"correction": "tis"}
    assert needed(settings(loss=tis).trainer) == ()
    assert needed(settings(epochs=2).trainer) == ()
    assert needed(settings(epochs=2, loss=tis).trainer) == (Column.PROXIMAL,)
