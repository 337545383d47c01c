"""Adapters in the torch engine: it samples as the merged model does, and the base never drifts."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, PreTrainedModel

from seamlessflow.infra.weights.adapter import TENSORS
from seamlessflow.producers.rollout.engine.contract import SamplingParams
from seamlessflow.producers.rollout.engine.errors import WeightsRejected
from seamlessflow.producers.rollout.torch_engine.engine import TorchEngine, TorchEngineSettings
from seamlessflow.trainer.backends.adapter.whole_model import merge
from tests.builders.engines.adapters import adapter
from tests.builders.models import large_model, model, plain_logprobs, prompt, saved
from tests.builders.rollout.generation import Generation


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return saved(model(), tmp_path / "base")


@pytest.fixture
def engine(base: Path, tmp_path: Path) -> Iterator[TorchEngine]:
    """Yield an engine with a first adapter as version 1."""
    first = adapter(base, tmp_path / "first", seed=1)
    engine = TorchEngine.from_directory(first, TorchEngineSettings(), version=1)
    yield engine
    engine.close()


def merged(base: Path, directory: Path) -> PreTrainedModel:
    target = directory.with_name(f"{directory.name}-merged")
    merge(base, directory, target)
    merged_model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(target)
    return merged_model


def assert_samples(engine: TorchEngine, source: PreTrainedModel, version: int) -> None:
    generation = Generation(engine, prompt(20), SamplingParams(30, seed=1))
    generation.finish()
    expected = plain_logprobs(source, generation.tokens, 20)
    np.testing.assert_allclose(generation.logprobs, expected, rtol=0, atol=1e-4)
    assert set(generation.versions) == {version}


def load(engine: TorchEngine, directory: Path, version: int) -> None:
    engine.pause("keep")
    engine.load_weights(directory, version)
    engine.resume()


def test_an_engine_samples_with_its_adapter_and_with_the_next_one(
    engine: TorchEngine, base: Path, tmp_path: Path
) -> None:
    assert_samples(engine, merged(base, tmp_path / "first"), 1)
    second = adapter(base, tmp_path / "second", seed=2, rank=2)
    load(engine, second, 2)
    assert_samples(engine, merged(base, second), 2)


def test_adapters_are_added_to_packed_layers(tmp_path: Path) -> None:
    base = saved(large_model(), tmp_path / "large")
    first = adapter(base, tmp_path / "first-of-large", size=0.1)
    with closing(TorchEngine.from_directory(first, TorchEngineSettings(), version=1)) as engine:
        assert_samples(engine, merged(base, first), 1)
        second = adapter(base, tmp_path / "second-of-large", seed=2, size=0.1)
        load(engine, second, 2)
        assert_samples(engine, merged(base, second), 2)


def test_adapters_of_another_base_and_whole_weights_take_turns(
    engine: TorchEngine, base: Path, tmp_path: Path
) -> None:
    other = saved(model(seed=5), tmp_path / "other")
    of_other = adapter(other, tmp_path / "of-other", seed=3)
    first = tmp_path / "first"
    sources = {
        first: merged(base, first),
        other: model(seed=5),
        of_other: merged(other, of_other),
        base: model(),
    }
    for version, directory in enumerate([other, first, of_other, first, base, of_other], start=2):
        load(engine, directory, version)
        assert_samples(engine, sources[directory], version)


def test_the_base_is_the_same_to_the_bit_after_many_adapters(
    engine: TorchEngine, base: Path, tmp_path: Path
) -> None:
    again = Generation(engine, prompt(20), SamplingParams(30, seed=1))
    again.finish()
    for number in range(5):
        load(engine, adapter(base, tmp_path / f"{number}", seed=number, size=30.0), number + 2)
    load(engine, tmp_path / "first", 9)
    generation = Generation(engine, prompt(20), SamplingParams(30, seed=1))
    generation.finish()
    assert generation.logprobs == again.logprobs


def test_an_adapter_stays_when_the_engine_sleeps(
    engine: TorchEngine, base: Path, tmp_path: Path
) -> None:
    engine.pause("keep")
    engine.sleep()
    engine.wake()
    engine.resume()
    assert_samples(engine, merged(base, tmp_path / "first"), 1)


def broken(directory: Path, kind: str) -> None:
    tensors = load_file(directory / TENSORS)
    name = next(name for name in tensors if name.endswith("lora_B.weight"))
    if kind == "half of a layer":
        del tensors[name]
    elif kind == "no layer":
        tensors = {old.replace("layers.0", "layers.7"): tensor for old, tensor in tensors.items()}
    elif kind == "has the shape":
        tensors[name] = torch.zeros(3, 3)
    elif kind == "finite":
        tensors[name][0] = float("nan")
    save_file(tensors, directory / TENSORS)


@pytest.mark.parametrize("kind", ["half of a layer", "no layer", "has the shape", "finite"])
def test_an_adapter_that_does_not_fit_leaves_the_engine_with_its_own(
    engine: TorchEngine, base: Path, tmp_path: Path, kind: str
) -> None:
    wrong = adapter(base, tmp_path / "wrong", seed=2)
    broken(wrong, kind)
    engine.pause("keep")
    with pytest.raises(WeightsRejected, match=kind):
        engine.load_weights(wrong, 2)
    engine.resume()
    assert_samples(engine, merged(base, tmp_path / "first"), 1)
