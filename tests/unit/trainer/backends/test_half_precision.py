"""Half precision: float32 master weights, float16 with loss scaling, published weights in half."""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from safetensors.torch import load_file
from torch import Tensor

from tests.builders.trainer.chains import some_chains, with_advantages
from tests.builders.trainer.gangs.meetings import meeting
from tests.builders.trainer.gangs.own_gang import leave_gang
from tests.builders.trainer.models import open_tiny, write_tiny
from trainer.backends.backend import StepInput
from trainer.backends.megatron.megatron_backend import MegatronBackend
from trainer.backends.optimizer_state import WEIGHTS
from trainer.backends.torch_backend import TorchBackend
from trainer.data.packing import pack
from trainer.settings import TrainerSection

Make = Callable[[Path, TrainerSection], TorchBackend]
"""Returns the back end of a model's directory, in place of any before it."""


def divided(model: Path, settings: TrainerSection) -> TorchBackend:
    leave_gang()
    return MegatronBackend(model, settings.model_copy(update={"backend": "megatron"}), meeting())


@pytest.fixture(params=[TorchBackend, divided], ids=["torch", "megatron"])
def make(request: pytest.FixtureRequest) -> Iterator[Make]:
    made: Make = request.param
    yield made
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
    found = make(model_directory, half(dtype)).train(small_step())
    assert found["grad_norm"] == pytest.approx(wanted["grad_norm"], rel=0.05)
    assert found["loss"] == pytest.approx(wanted["loss"], abs=0.05)


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
    wanted, one = first.train(small_step(1)), weights_of(first, tmp_path / "first")
    second = make(model_directory, half(dtype))
    second.load(saved, 1)
    assert second.train(small_step(1)) == wanted
    other = weights_of(second, tmp_path / "second")
    assert all(torch.equal(one[name], other[name]) for name in one)


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


def test_master_weights_of_fewer_bits_than_the_computation_are_refused() -> None:
    with pytest.raises(ValidationError, match="master_dtype bfloat16 needs dtype bfloat16"):
        half("float32", master_dtype="bfloat16")
