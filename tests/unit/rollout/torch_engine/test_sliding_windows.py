"""Models whose layers see a window of the last tokens only, compared with their own forward."""

from typing import Any

import numpy as np
import pytest

from seamlessflow.producers.rollout.engine.contract import SamplingParams
from tests.builders.engines.torch_engine import StartEngine
from tests.builders.models import config, greedy_by_generate, plain_logprobs, prompt, random_model
from tests.builders.rollout.generation import Generation

WINDOW = 16
ALTERNATING = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": WINDOW}

KINDS: dict[str, dict[str, Any]] = {
    "gemma2": {**ALTERNATING, "query_pre_attn_scalar": 16},
    "gemma3_text": {**ALTERNATING, "query_pre_attn_scalar": 16},
    "qwen3": {"use_sliding_window": True, "sliding_window": WINDOW, "max_window_layers": 1},
    "mistral": {"sliding_window": WINDOW},
    "phi3": {"sliding_window": WINDOW, "pad_token_id": 0},
}


@pytest.mark.parametrize("kind", KINDS)
def test_rows_shorter_and_longer_than_the_window_agree_with_a_plain_forward(
    kind: str, start: StartEngine
) -> None:
    source = random_model(config(kind, **KINDS[kind]))
    engine = start(source, prefill_tokens=32)
    lengths = [1, WINDOW - 1, WINDOW, WINDOW + 1, 40, 90]

    generations = [
        Generation(engine, prompt(length, seed), SamplingParams(30), f"r{seed}")
        for seed, length in enumerate(lengths)
    ]

    assert {each.finish() for each in generations} == {"length"}
    for each in generations:
        expected = plain_logprobs(source, each.tokens, len(each.prompt))
        np.testing.assert_allclose(each.logprobs, expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_greedy_equals_generate(kind: str, start: StartEngine) -> None:
    source = random_model(config(kind, **KINDS[kind]))
    engine = start(source)
    asked = Generation(engine, prompt(50), SamplingParams(30, temperature=0))
    asked.finish()
    assert asked.completion == greedy_by_generate(source, asked.prompt, 30)

    further = [*asked.tokens, *prompt(9, 1)]
    reused = Generation(engine, further, SamplingParams(30), "next")
    reused.finish()
    expected = plain_logprobs(source, reused.tokens, len(further))
    np.testing.assert_allclose(reused.logprobs, expected, rtol=0, atol=1e-4)
