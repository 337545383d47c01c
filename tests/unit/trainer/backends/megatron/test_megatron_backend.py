"""The Megatron-core back end of one rank: what it computes is what the torch back end does."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

import pytest
import torch

from seamlessflow.trainer.backends.backend import ModelUnusable, StepInput
from seamlessflow.trainer.backends.megatron.megatron_backend import MegatronBackend
from seamlessflow.trainer.backends.optimizer_state import WEIGHTS
from seamlessflow.trainer.backends.sharded.parts import TensorParts
from seamlessflow.trainer.backends.torch_backend import TorchBackend
from seamlessflow.trainer.data.chains import Column
from seamlessflow.trainer.data.packing import Layout, pack
from seamlessflow.trainer.settings import TrainerSection
from tests.builders.models import model
from tests.builders.trainer.chains import (
    sampled,
    some_chains,
    with_advantages,
    with_returns,
    with_two_values,
)
from tests.builders.trainer.gangs.meetings import meeting
from tests.builders.trainer.gangs.own_gang import leave_gang
from tests.builders.trainer.models import write_family, write_tiny, write_windowed

ADVANTAGES = [1.0, -1.0, 0.5, -2.0, 0.3, 1.5]
FAMILIES = ("llama", "qwen2", "qwen3")


@pytest.fixture(autouse=True)
def gang() -> Iterator[None]:
    yield
    leave_gang()


def section(**more: Any) -> TrainerSection:
    return TrainerSection.model_validate({"device": "cpu", "threads": 1, **more})


def divided(model: Path, **more: Any) -> MegatronBackend:
    return MegatronBackend(model, section(backend="megatron", **more), meeting())


def step(layout: Layout = "padded") -> StepInput:
    chains = with_two_values(with_returns(with_advantages(some_chains(), ADVANTAGES)))
    return StepInput(pack(chains, 40, layout), [], 0, 0.05)


def assert_near(tensors: Mapping[str, torch.Tensor], wanted: Mapping[str, torch.Tensor]) -> None:
    assert tensors.keys() == wanted.keys()
    for name, tensor in wanted.items():
        torch.testing.assert_close(tensors[name], tensor, atol=1e-5, rtol=1e-4, msg=name)


@pytest.mark.parametrize("layout", get_args(Layout))
@pytest.mark.parametrize("family", FAMILIES)
def test_gradients_are_those_of_the_torch_back_end(
    tmp_path: Path, family: str, layout: Layout
) -> None:
    model = write_family(tmp_path, family)
    *_, wanted = TorchBackend(model, section(layout=layout)).gradients(step(layout))
    backend = divided(model, layout=layout)
    *_, gradients = backend.gradients(step(layout))
    assert_near(gradients, wanted)


CRITICS: Mapping[str, Mapping[str, Any]] = {
    "none": {},
    "model": {"advantage": "gae", "critic": {"lr": 0.05}},
    "head": {"advantage": "gae", "critic": {"kind": "head", "coefficient": 0.5, "lr": 0.05}},
    "two values": {"advantage": "habc", "critic": {"lr": 0.05}},
}


@pytest.mark.parametrize("critic", CRITICS)
@pytest.mark.parametrize("family", FAMILIES)
def test_updates_and_checkpoints_are_those_of_the_torch_back_end(
    tmp_path: Path, family: str, critic: str
) -> None:
    model = write_family(tmp_path / "model", family)
    settings = {
        "optimizer": {"eps": 1.0, "weight_decay": 0.1, "clip_norm": 0.5},
        **CRITICS[critic],
    }
    plain, backend = TorchBackend(model, section(**settings)), divided(model, **settings)
    for _ in range(3):
        assert backend.train(step()) == pytest.approx(plain.train(step()), rel=1e-4, abs=1e-5)
    files = backend.state()
    assert files.keys() == plain.state().keys()
    for file, parts in plain.state().items():
        values, wanted = (
            {name: part.values for name, part in tensors.items()}
            for tensors in (files[file], parts)
        )
        assert_near(values, wanted)
    # A checkpoint of one goes on in the other.
    backend.snapshot()
    backend.save(tmp_path)
    plain.load(tmp_path, 3)
    assert plain.train(step()) == pytest.approx(backend.train(step()), rel=1e-4, abs=1e-5)


def test_a_critic_may_come_from_a_directory_without_settings_of_generation(tmp_path: Path) -> None:
    model = write_family(tmp_path / "model", "qwen3")
    (model / "generation_config.json").unlink()
    plain, backend = (
        TorchBackend(model, section(**CRITICS["model"])),
        divided(model, **CRITICS["model"]),
    )
    assert backend.train(step()) == pytest.approx(plain.train(step()), rel=1e-4, abs=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
def test_published_weights_are_those_of_a_hugging_face_model(tmp_path: Path, family: str) -> None:
    model = write_family(tmp_path / "model", family)
    backend = divided(model)
    backend.train(step())
    backend.write_weights(tmp_path)
    before, after = (
        json.loads((directory / "config.json").read_text()) for directory in (model, tmp_path)
    )
    assert after == before
    *_, trained = backend.gradients(step())
    *_, published = TorchBackend(tmp_path, section()).gradients(step())
    *_, initial = TorchBackend(model, section()).gradients(step())
    assert_near(trained, published)
    with pytest.raises(AssertionError):
        assert_near(initial, published)


def test_columns_are_those_of_the_torch_back_end(tmp_path: Path) -> None:
    model = write_family(tmp_path / "model", "qwen3")
    other = write_family(tmp_path / "other", "qwen3", seed=1)
    settings = {"loss": {"kl": 0.1}, "reference": other, "advantage": "distill", "teacher": other}
    names = [Column.PROXIMAL, Column.ENTROPY, Column.REFERENCE, Column.TEACHER]
    batches = step().micro_batches
    wanted = TorchBackend(model, section(**settings)).annotate(batches, names)
    columns = divided(model, **settings).annotate(batches, names)
    for name in names:
        for values_N, other_N in zip(columns[name], wanted[name], strict=True):
            assert values_N == pytest.approx(other_N, abs=1e-5)


def test_tokens_are_compared_under_the_weights_and_temperature_that_sampled_them(
    tmp_path: Path,
) -> None:
    model = write_tiny(tmp_path)
    backend = divided(model)
    backend.load(None, 0)
    old = pack(sampled(model, version=0, temperatures=(0.7, 1.0, 1.7)), 64, "padded")
    backend.train(step())
    metrics = backend.train(StepInput(old, old, 1, 0.05))
    assert metrics["mismatch_tokens"] > 0
    assert metrics["mismatch_max"] < 1e-5


@pytest.mark.parametrize("parted", [True, False], ids=["parted", "whole"])
def test_a_model_is_read_by_parts_unless_its_files_need_a_conversion(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, parted: bool
) -> None:
    made = model("qwen3")
    # The files of a model without its output name their tensors otherwise.
    (made if parted else made.model).save_pretrained(tmp_path, max_shard_size="50KB")
    wanted = {
        name: part.values for name, part in weights(TorchBackend(tmp_path, section())).items()
    }
    caplog.clear()
    tensors = {name: part.values for name, part in weights(divided(tmp_path)).items()}
    assert tensors.keys() == wanted.keys()
    assert all(torch.equal(tensors[name], tensor) for name, tensor in wanted.items())
    assert ("each rank loads all of it" in caplog.text) != parted


def weights(backend: TorchBackend) -> TensorParts:
    return backend.state()[WEIGHTS]


def test_a_file_cut_short_makes_the_model_unusable(tmp_path: Path) -> None:
    file = write_tiny(tmp_path) / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(ModelUnusable, match="cannot be loaded"):
        divided(tmp_path)


def test_a_model_of_another_family_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelUnusable, match="is a gemma2, not one of llama, qwen2, qwen3"):
        divided(write_windowed(tmp_path, window=3))
