"""Half precision: float32 master weights, float16 with loss scaling, published weights in half."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from safetensors.torch import load_file
from torch import Tensor

from seamlessflow.trainer.backends.backend import StepInput
from seamlessflow.trainer.backends.optimizer_state import WEIGHTS
from seamlessflow.trainer.backends.torch_backend import TorchBackend
from seamlessflow.trainer.data.chains import NOWHERE
from seamlessflow.trainer.data.packing import MicroBatch, pack
from seamlessflow.trainer.settings import TrainerSection
from tests.builders.trainer.chains import sampled, some_chains, with_advantages
from tests.builders.trainer.gangs.alone import BACKENDS, Make
from tests.builders.trainer.gangs.own_gang import leave_gang
from tests.builders.trainer.models import open_tiny, write_tiny


@pytest.fixture(params=BACKENDS)
def make(request: pytest.FixtureRequest) -> Iterator[Make]:
    yield BACKENDS[request.param]
    leave_gang()


@pytest.fixture(scope="module")
def model_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny(tmp_path_factory.mktemp("tiny"))


HALVES = ("bfloat16", "float16")


def half(dtype: str, **more: object) -> TrainerSection:
    # A rate far below the step from one bfloat16 weight to the next.
    return TrainerSection.model_validate(
        {"device": "cpu", "threads": 1, "dtype": dtype, "optimizer": {"lr": 1e-6}, **more}
    )


def small_step(seed: int = 0) -> StepInput:
    chains = some_chains(seed)
    batches = pack(with_advantages(chains, [1.0, -1.0] * 3), 64, "padded")
    return StepInput(batches, [], 0, 1e-6)


def weights_of(backend: TorchBackend, directory: Path) -> dict[str, Tensor]:
    """Return the weights as a checkpoint has them."""
    directory.mkdir(exist_ok=True)
    backend.snapshot()
    backend.save(directory)
    return load_file(directory / WEIGHTS)


@pytest.mark.parametrize("dtype", HALVES)
def test_an_update_too_small_for_half_precision_is_kept(
    make: Make, model_directory: Path, tmp_path: Path, dtype: str
) -> None:
    backend = make(model_directory, half(dtype))
    before = weights_of(backend, tmp_path / "weights")
    assert np.isfinite(backend.train(small_step())["grad_norm"])
    after = weights_of(backend, tmp_path / "after")
    moved = [name for name in before if not torch.equal(before[name], after[name])]
    assert moved == list(before), "every weight has moved"
    assert all(tensor.dtype == torch.float32 for tensor in after.values())
    distance = max(float((after[name] - before[name]).abs().max()) for name in before)
    assert 0 < distance < 1e-5


def test_without_master_weights_that_update_is_lost(
    make: Make, model_directory: Path, tmp_path: Path
) -> None:
    backend = make(model_directory, half("bfloat16", master_dtype="bfloat16"))
    before = weights_of(backend, tmp_path / "weights")
    backend.train(small_step())
    lost = [
        name
        for name, new in weights_of(backend, tmp_path / "after").items()
        if torch.equal(before[name], new)
    ]
    assert lost, "else this test shows nothing of the one above"


@pytest.mark.parametrize("dtype", HALVES)
def test_half_precision_computes_nearly_the_same_gradient(
    make: Make, model_directory: Path, dtype: str
) -> None:
    wanted = TorchBackend(model_directory, half("float32")).train(small_step())
    metrics = make(model_directory, half(dtype)).train(small_step())
    assert metrics["grad_norm"] == pytest.approx(wanted["grad_norm"], rel=0.05)
    assert metrics["loss"] == pytest.approx(wanted["loss"], abs=0.05)


@pytest.mark.parametrize("dtype", HALVES)
def test_half_precision_goes_on_from_a_checkpoint_as_if_nothing_had_happened(
    make: Make, model_directory: Path, tmp_path: Path, dtype: str
) -> None:
    saved = tmp_path / "saved"
    saved.mkdir()
    first = make(model_directory, half(dtype))
    first.train(small_step())
    first.snapshot()
    first.save(saved)
    wanted, weights = first.train(small_step(1)), weights_of(first, tmp_path / "first")
    second = make(model_directory, half(dtype))
    second.load(saved, 1)
    assert second.train(small_step(1)) == wanted
    other = weights_of(second, tmp_path / "second")
    assert all(torch.equal(weights[name], other[name]) for name in weights)


@pytest.mark.parametrize("dtype", HALVES)
def test_weights_are_published_in_the_type_that_computes(
    make: Make, model_directory: Path, tmp_path: Path, dtype: str
) -> None:
    backend = make(model_directory, half(dtype))
    backend.write_weights(tmp_path)
    assert backend.dtype == dtype
    assert open_tiny(tmp_path).dtype == getattr(torch, dtype)


def test_a_gradient_that_overflows_when_scaled_is_computed_again(
    make: Make, model_directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    chains = some_chains()
    batches = pack(with_advantages(chains, [3e4] * 6), 64, "padded")
    backend = make(model_directory, half("float16", loss={"name": "tis"}))
    metrics = backend.train(StepInput(batches, [], 0, 1e-6))
    assert "again with a smaller one" in caplog.text
    exact = TorchBackend(model_directory, half("float32", loss={"name": "tis"}))
    wanted = exact.train(StepInput(batches, [], 0, 1e-6))
    assert metrics["grad_norm"] == pytest.approx(wanted["grad_norm"], rel=0.05)


def measured(backend: TorchBackend, samples: Sequence[MicroBatch]) -> dict[str, float]:
    """Return what a step without a trained token measures of older versions."""
    return backend.train(StepInput([], samples, NOWHERE, 0.0))


def check_versions(backend: TorchBackend, model: Path) -> None:
    """Train three versions apart, and measure tokens of each by itself and all together."""
    steps = range(3)
    for version in steps:
        backend.remember(version)
        batches = pack(with_advantages(some_chains(version), [1.0, -1.0] * 3), 64, "padded")
        backend.train(StepInput(batches, [], NOWHERE, 0.05))
    samples = {version: pack(sampled(model, version), 64, "padded") for version in steps}
    alone = [measured(backend, samples[version]) for version in steps]
    means = [metrics["mismatch_mean"] for metrics in alone]
    assert max(means) > 2 * min(means), "else no version differs from another"
    together = measured(backend, [batch for version in steps for batch in samples[version]])
    assert together["mismatch_tokens"] == sum(metrics["mismatch_tokens"] for metrics in alone)
    # Each has as many tokens as the others.
    assert together["mismatch_mean"] == pytest.approx(np.mean(means), rel=1e-6)
    assert together["mismatch_max"] == max(metrics["mismatch_max"] for metrics in alone)


@pytest.mark.parametrize("dtype", [*HALVES, "float32"])
def test_versions_measured_in_one_step_are_each_measured_under_their_own_weights(
    make: Make, model_directory: Path, dtype: str
) -> None:
    check_versions(make(model_directory, half(dtype, mismatch_versions=3)), model_directory)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize(
    "more",
    [{"adapter": {"rank": 2}}, {"gradient_checkpointing": True}],
    ids=["adapter", "recomputed"],
)
def test_versions_are_measured_under_their_own_weights_whatever_else_is_set(
    model_directory: Path, dtype: str, more: dict[str, Any]
) -> None:
    backend = TorchBackend(model_directory, half(dtype, mismatch_versions=3, **more))
    check_versions(backend, model_directory)


def test_master_weights_of_fewer_bits_than_the_computation_are_refused() -> None:
    with pytest.raises(ValidationError, match="master_dtype bfloat16 needs dtype bfloat16"):
        half("float32", master_dtype="bfloat16")
