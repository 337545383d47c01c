"""Tokens that vLLM samples, against a plain forward of the same model by `transformers`."""

import json
from pathlib import Path

import numpy as np
import pytest
from transformers import AutoModelForCausalLM, PreTrainedModel

from seamlessflow.infra.rendering.tokenizer import Tokenizer
from seamlessflow.producers.rollout.engine.contract import SamplingParams
from seamlessflow.producers.rollout.engine.errors import SamplingUnsupported
from seamlessflow.producers.rollout.vllm_engine.engine import VllmEngine
from tests.builders.models import plain_logprobs, plain_top, prompt
from tests.builders.rollout.generation import Generation, as_bytes

pytestmark = pytest.mark.vllm
TOLERANCE = 1e-4
SCHEMA = json.dumps(
    {
        "type": "object",
        "properties": {"answer": {"type": "integer"}},
        "required": ["answer"],
        "additionalProperties": False,
    }
)


@pytest.fixture
def plain(models: tuple[Path, Path]) -> PreTrainedModel:
    """Return the engine's model."""
    loaded: PreTrainedModel = AutoModelForCausalLM.from_pretrained(models[0])
    return loaded


@pytest.fixture
def tokenizer(models: tuple[Path, Path]) -> Tokenizer:
    return Tokenizer.load(models[0])


@pytest.mark.parametrize(
    "sampling",
    [
        SamplingParams(120),
        SamplingParams(120, temperature=0),
        SamplingParams(120, temperature=1.7),
    ],
    ids=["plain", "greedy", "hot"],
)
def test_log_probabilities_are_those_at_the_temperature(
    engine: VllmEngine, plain: PreTrainedModel, sampling: SamplingParams
) -> None:
    asked = [Generation(engine, prompt(20, seed), sampling, f"r{seed}") for seed in range(4)]
    for done in asked:
        assert done.finish() == "length"
        wanted = plain_logprobs(plain, done.tokens, len(done.prompt), sampling.temperature or 1.0)
        np.testing.assert_allclose(done.logprobs, wanted, rtol=0, atol=TOLERANCE)


def test_the_most_likely_tokens_are_those_at_the_temperature(
    engine: VllmEngine, plain: PreTrainedModel
) -> None:
    done = Generation(engine, prompt(20), SamplingParams(40, temperature=0.5, top_logprobs=5))
    done.finish()
    ids, logprobs = plain_top(plain, done.tokens, 20, 5, 0.5)
    assert [list(row) for row in done.tops] == ids
    rows = [list(row.values()) for row in done.tops]
    np.testing.assert_allclose(rows, logprobs, rtol=0, atol=TOLERANCE)


def test_a_text_follows_its_schema_and_ends(engine: VllmEngine, tokenizer: Tokenizer) -> None:
    end = tokenizer.token_id("<|im_end|>")
    assert end is not None
    asked = SamplingParams(150, stop_token_ids=(end,), json_schema=SCHEMA)
    for seed in range(3):
        done = Generation(engine, prompt(20, seed), asked, f"r{seed}")
        if done.finish() == "stop":
            text = tokenizer.decode(done.completion[:-1])
            assert isinstance(json.loads(text)["answer"], int)
        assert len(done.chunks) == 1


def test_a_schema_that_is_none_is_refused_and_nothing_else_ends(engine: VllmEngine) -> None:
    other = Generation(engine, prompt(20), SamplingParams(100), "other")
    bad = SamplingParams(50, json_schema='{"type": "nonsense"}')
    refused = Generation(engine, prompt(20), bad, "refused")
    assert refused.finish() == "abort"
    assert "nonsense" in refused.chunks[-1].refused
    assert other.finish() == "length"
    assert engine.health().error is None


def test_a_seed_is_refused_on_a_cpu(engine: VllmEngine) -> None:
    with pytest.raises(SamplingUnsupported, match="seed"):
        engine.submit("r", as_bytes([1]), b"", SamplingParams(5, seed=1), lambda chunk: None)
