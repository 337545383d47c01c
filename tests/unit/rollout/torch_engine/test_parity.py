"""The torch engine samples and reports the distribution of a plain forward of the model."""

from collections.abc import Sequence

import numpy as np
import pytest
from transformers import PreTrainedModel

from seamlessflow.producers.rollout.engine.contract import SamplingParams
from tests.builders.engines.torch_engine import StartEngine
from tests.builders.models import (
    greedy_by_generate,
    model,
    plain_logprobs,
    plain_top,
    prompt,
)
from tests.builders.rollout.generation import Generation

TOLERANCE = 1e-4


def assert_plain(
    source: PreTrainedModel, generations: Sequence[Generation], temperature: float = 1.0
) -> None:
    for each in generations:
        start = len(each.tokens) - len(each.logprobs)
        expected = plain_logprobs(source, each.tokens, start, temperature)
        np.testing.assert_allclose(each.logprobs, expected, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("kind", ["qwen3", "qwen2", "llama"])
def test_rows_of_different_lengths_agree_with_a_plain_forward(
    kind: str, start: StartEngine
) -> None:
    source = model(kind)
    engine = start(source)
    lengths = [1, 2, 3, 17, 40, 5, 64, 31]
    generations = [
        Generation(engine, prompt(length, seed), SamplingParams(50 + 3 * seed), f"r{seed}")
        for seed, length in enumerate(lengths)
    ]
    assert {each.finish() for each in generations} == {"length"}
    assert [len(each.completion) for each in generations] == [50 + 3 * i for i in range(8)]
    assert_plain(source, generations)


def test_requests_that_join_and_leave_a_running_batch_agree_with_a_plain_forward(
    start: StartEngine,
) -> None:
    source = model()
    engine = start(source, max_running=4, max_rows=6)
    first = Generation(engine, prompt(9, 99), SamplingParams(120), "first", hold_at=20)
    first.wait_held()
    later = [
        Generation(engine, prompt(3 + 11 * seed, seed), SamplingParams(10 + 9 * seed), f"r{seed}")
        for seed in range(9)
    ]
    first.let_go()
    for each in (first, *later):
        each.finish()
    assert_plain(source, [first, *later])


def test_prompts_above_the_token_budget_are_prefilled_in_chunks(start: StartEngine) -> None:
    source = model()
    engine = start(source, prefill_tokens=32)
    lengths = [200, 7, 33, 64, 150, 31]
    generations = [
        Generation(engine, prompt(length, seed), SamplingParams(20), f"r{seed}")
        for seed, length in enumerate(lengths)
    ]
    for each in generations:
        each.finish()
    assert_plain(source, generations)


@pytest.mark.parametrize("kind", ["qwen3", "qwen2", "llama"])
def test_greedy_equals_generate(kind: str, start: StartEngine) -> None:
    source = model(kind)
    engine = start(source)
    generations = [
        Generation(engine, prompt(5 + 20 * i, i), SamplingParams(60, temperature=0), f"r{i}")
        for i in range(4)
    ]
    assert {each.finish() for each in generations} == {"length"}
    for each in generations:
        assert each.completion == greedy_by_generate(source, each.prompt, 60)
    assert_plain(source, generations)


def test_logprobs_are_at_the_temperature_whatever_else_the_sampling(start: StartEngine) -> None:
    source = model()
    engine = start(source)
    bent = [
        SamplingParams(40, temperature=0.3),
        SamplingParams(40, temperature=2.0, top_k=5),
        SamplingParams(40, top_p=0.5),
        SamplingParams(40, temperature=0),
    ]
    generations = [
        Generation(engine, prompt(12, i), sampling, f"r{i}") for i, sampling in enumerate(bent)
    ]
    for each, sampling in zip(generations, bent, strict=True):
        each.finish()
        assert_plain(source, [each], sampling.temperature or 1.0)


def test_the_most_likely_tokens_are_those_of_a_plain_forward(start: StartEngine) -> None:
    source = model()
    engine = start(source)
    asked = [
        Generation(
            engine,
            prompt(12, count),
            SamplingParams(20, temperature=2.0, top_k=5, top_logprobs=count),
            f"r{count}",
        )
        for count in (0, 1, 5, 20)
    ]
    for each in asked:
        each.finish()
        count = len(each.tops[0]) if each.tops else 0
        ids, logprobs = plain_top(source, each.tokens, 12, count, 2.0)
        assert [list(row) for row in each.tops] == ids[: len(each.tops)]
        tops = [list(row.values()) for row in each.tops]
        np.testing.assert_allclose(tops, logprobs[: len(each.tops)], rtol=0, atol=TOLERANCE)


def test_a_continuation_on_another_engine_goes_on_as_the_first_would_have(
    start: StartEngine,
) -> None:
    sampling = SamplingParams(80, seed=7)
    whole = Generation(start(model()), prompt(30), sampling)
    whole.finish()
    source = model()
    other = start(source)
    Generation(other, prompt(50, 3), SamplingParams(400), "company")
    for done in (0, 1, 33, 79):
        rest = Generation(
            other, prompt(30), sampling, f"rest of {done}", completion=whole.completion[:done]
        )
        assert rest.finish() == "length"
        assert rest.completion == whole.completion
        assert rest.chunks[0].offset == done
        assert_plain(source, [rest])
    other.abort("company")


def test_a_seed_draws_the_same_alone_and_in_company(start: StartEngine) -> None:
    engine = start(model())
    sampling = SamplingParams(40, seed=11)
    alone = Generation(engine, prompt(10), sampling, "alone")
    alone.finish()
    company = [
        Generation(engine, prompt(20, i), SamplingParams(60, top_k=3, seed=i), f"r{i}")
        for i in range(5)
    ]
    among = Generation(engine, prompt(10), sampling, "among")
    for each in (among, *company):
        each.finish()
    assert among.completion == alone.completion


def test_requests_without_a_seed_differ(start: StartEngine) -> None:
    engine = start(model())
    first, other = (Generation(engine, prompt(10), SamplingParams(40), f"r{i}") for i in range(2))
    first.finish()
    other.finish()
    assert first.completion != other.completion
