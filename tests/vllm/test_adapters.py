"""vLLM with adapters on one base: the promises of engines, and a change in the middle of a stream.

The server is another one than that of the other tests: it must be started for adapters.
"""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from transformers import AutoModelForCausalLM, PreTrainedModel

from seamlessflow.producers.rollout.engine.contract import SamplingParams
from seamlessflow.producers.rollout.engine.errors import WeightsRejected
from seamlessflow.producers.rollout.settings import VllmSection
from seamlessflow.producers.rollout.vllm_engine.engine import VllmEngine
from seamlessflow.producers.rollout.vllm_engine.launch import for_adapters
from seamlessflow.producers.rollout.vllm_engine.server import VllmServer
from seamlessflow.trainer.backends.adapter.whole_model import merge
from tests.builders.engines.adapters import adapter
from tests.builders.models import plain_logprobs, plain_rows, prompt
from tests.builders.rollout.generation import Generation
from tests.contracts.engine import Distribution, EngineContract
from tests.vllm.models import CAPACITY, LONG_CONTEXT, VERSION
from tests.waiting import until

pytestmark = pytest.mark.vllm
LENGTH = 800
RANK = 4
TOLERANCE = 1e-4


@pytest.fixture(scope="module")
def adapters(
    models: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Path]:
    """Return the directories of two adapters of the first model."""
    root = tmp_path_factory.mktemp("adapters")
    first, second = (adapter(models[0], root / f"{n}", seed=n, rank=RANK) for n in (0, 1))
    return first, second


@pytest.fixture(scope="module")
def merged(models: tuple[Path, Path], adapters: tuple[Path, Path]) -> list[PreTrainedModel]:
    """Return what each adapter makes of its base, as one model."""
    merged_models: list[PreTrainedModel] = []
    for each in adapters:
        target = each.with_name(f"{each.name}-merged")
        merge(models[0], each, target)
        merged_models.append(AutoModelForCausalLM.from_pretrained(target))
    return merged_models


@pytest.fixture(scope="module")
def server(
    section: VllmSection, models: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[VllmServer]:
    log_file = tmp_path_factory.mktemp("log") / "vllm.log"
    server = VllmServer(for_adapters(section, RANK), CAPACITY, models[0], log_file)
    try:
        server.await_ready()
        yield server
    finally:
        server.stop()


@pytest.fixture
def served(adapters: tuple[Path, Path]) -> Path:
    return adapters[0]


@pytest.fixture
def distribution(merged: list[PreTrainedModel]) -> Distribution:
    return partial(plain_rows, merged[0])


@pytest.fixture
def weights(adapters: tuple[Path, Path]) -> Path:
    return adapters[1]


class TestVllmEngineWithAdapter(EngineContract):
    structured_output = True
    whole_vocabulary = False
    loads_asleep = False


def assert_samples(
    generation: Generation, source: PreTrainedModel, start: int, end: int | None
) -> None:
    wanted = plain_logprobs(source, generation.tokens, len(generation.prompt))[start:end]
    np.testing.assert_allclose(generation.logprobs[start:end], wanted, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("context", [LONG_CONTEXT])
def test_another_adapter_in_mid_stream_takes_over_at_an_exact_token(
    engine: VllmEngine, weights: Path, merged: list[PreTrainedModel]
) -> None:
    generation = Generation(engine, prompt(20), SamplingParams(LENGTH))
    until(lambda: bool(generation.completion))
    engine.pause("keep")
    at = len(generation.completion)
    assert at < LENGTH
    engine.load_weights(weights, VERSION + 1)
    engine.resume()
    assert generation.finish() == "length"
    sampled_by = [
        chunk.spans[0].version
        for chunk in generation.chunks
        for _ in range(len(chunk.token_ids) // 4)
    ]
    assert sampled_by == [VERSION] * at + [VERSION + 1] * (LENGTH - at)
    assert_samples(generation, merged[0], 0, at)
    assert_samples(generation, merged[1], at, None)


def test_many_updates_leave_the_base_as_it_was(
    engine: VllmEngine, adapters: tuple[Path, Path], merged: list[PreTrainedModel]
) -> None:
    for number in range(7):
        engine.pause("keep")
        engine.load_weights(adapters[number % 2], VERSION + number)
        engine.resume()
    generation = Generation(engine, prompt(20), SamplingParams(30))
    generation.finish()
    assert_samples(generation, merged[0], 0, None)


def test_what_the_server_was_not_started_for_is_refused(
    engine: VllmEngine, models: tuple[Path, Path], adapters: tuple[Path, Path], tmp_path: Path
) -> None:
    of_other = adapter(models[1], tmp_path / "other", rank=RANK)
    too_large = adapter(models[0], tmp_path / "large", rank=16)
    engine.pause("keep")
    for directory, reason in (
        (models[0], "a whole model, the server is for an adapter"),
        (of_other, "an adapter of"),
        (too_large, "rank 16"),
    ):
        with pytest.raises(WeightsRejected, match=reason):
            engine.load_weights(directory, VERSION + 1)
    engine.resume()
    assert engine.health().error is None


def test_a_server_is_started_for_the_adapter_that_it_begins_with(
    section: VllmSection,
    adapters: tuple[Path, Path],
    merged: list[PreTrainedModel],
    context: int,
    tmp_path: Path,
) -> None:
    settings = section.model_copy(update={"max_length": context})
    engine = VllmEngine(settings, CAPACITY, adapters[0], VERSION, tmp_path / "own.log")
    try:
        generation = Generation(engine, prompt(20), SamplingParams(30))
        assert generation.finish() == "length"
        assert_samples(generation, merged[0], 0, None)
        assert set(generation.versions) == {VERSION}
    finally:
        engine.close()
