"""New weights, pauses and aborts in the middle of what vLLM samples."""

from collections.abc import Callable
from pathlib import Path

import httpx
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from transformers import AutoModelForCausalLM, PreTrainedModel

from seamlessflow.producers.rollout.engine.contract import SamplingParams
from seamlessflow.producers.rollout.engine.errors import WeightsRejected
from seamlessflow.producers.rollout.vllm_engine.engine import VllmEngine
from seamlessflow.producers.rollout.vllm_engine.server import VllmServer
from tests import http
from tests.builders.models import plain_logprobs, prompt
from tests.builders.rollout.generation import Generation
from tests.vllm.models import LONG_CONTEXT, VERSION
from tests.waiting import until

pytestmark = pytest.mark.vllm
TOLERANCE = 1e-4
ATTEMPTS = 20
LENGTH = 1500
LONG = SamplingParams(LENGTH, temperature=0)
NEXT = VERSION + 1


@pytest.fixture(scope="module")
def plain(models: tuple[Path, Path]) -> Callable[[int], PreTrainedModel]:
    """Return the model of a version."""
    loaded = [AutoModelForCausalLM.from_pretrained(each) for each in models]
    return lambda version: loaded[version - VERSION]


@pytest.fixture
def context() -> int:
    return LONG_CONTEXT


def some_of(generation: Generation) -> None:
    until(lambda: bool(generation.completion))


def test_tokens_come_while_more_are_sampled(engine: VllmEngine, server: VllmServer) -> None:
    asked = Generation(engine, prompt(20), LONG, "asked")
    some_of(asked)
    assert running(server) == 1
    assert asked.finish() == "length"
    assert len(asked.chunks) > LENGTH // 10


def test_an_update_in_mid_stream_switches_policy_at_an_exact_token(
    engine: VllmEngine, weights: Path, plain: Callable[[int], PreTrainedModel]
) -> None:
    asked = [
        Generation(engine, prompt(20, seed), SamplingParams(LENGTH), f"r{seed}")
        for seed in range(6)
    ]
    some_of(asked[0])
    engine.pause("keep")
    before = [len(each.completion) for each in asked]
    assert engine.health().paused
    engine.load_weights(weights, NEXT)
    assert [len(each.completion) for each in asked] == before
    engine.resume()
    assert any(0 < switched < LENGTH for switched in before)
    for done, switched in zip(asked, before, strict=True):
        assert done.finish() == "length"
        old, new = (plain_logprobs(plain(v), done.tokens, 20) for v in (VERSION, NEXT))
        wanted = np.concatenate([old[:switched], new[switched:]])
        np.testing.assert_allclose(done.logprobs, wanted, rtol=0, atol=TOLERANCE)
        sampled_by = [
            chunk.spans[0].version
            for chunk in done.chunks
            for _ in range(len(chunk.token_ids) // 4)
        ]
        assert sampled_by == [VERSION] * switched + [NEXT] * (LENGTH - switched)


def test_a_pause_alone_changes_nothing(engine: VllmEngine) -> None:
    untouched = Generation(engine, prompt(20), LONG, "untouched")
    untouched.finish()
    paused = Generation(engine, prompt(20), LONG, "paused")
    some_of(paused)
    engine.pause("keep")
    assert len(paused.completion) < LENGTH
    engine.resume()
    assert paused.finish() == "length"
    assert paused.completion == untouched.completion
    np.testing.assert_allclose(paused.logprobs, untouched.logprobs, rtol=0, atol=TOLERANCE)


def test_what_was_aborted_is_continued_from_its_tokens(engine: VllmEngine) -> None:
    untouched = Generation(engine, prompt(20), LONG, "untouched")
    untouched.finish()
    begun = Generation(engine, prompt(20), LONG, "begun")
    some_of(begun)
    engine.pause("abort")
    assert begun.finish() == "abort"
    engine.resume()
    rest = Generation(engine, prompt(20), LONG, "rest", completion=begun.completion)
    assert rest.finish() == "length"
    assert rest.completion == untouched.completion
    logprobs = begun.logprobs + rest.logprobs
    np.testing.assert_allclose(logprobs, untouched.logprobs, rtol=0, atol=TOLERANCE)


def test_an_aborted_request_ends_in_the_server_too(engine: VllmEngine, server: VllmServer) -> None:
    asked = [Generation(engine, prompt(20, seed), LONG, f"r{seed}") for seed in range(8)]
    some_of(asked[0])
    engine.abort(None)
    assert {each.finish() for each in asked} == {"abort"}
    until(lambda: running(server) == 0)
    assert max(len(each.completion) for each in asked) < LENGTH


def paused_in_the_middle(engine: VllmEngine, server: VllmServer) -> Generation:
    """Return a generation under a schema that a pause interrupted; fail after some attempts."""
    schema = '{"type": "array", "items": {"type": "integer"}, "minItems": 1000}'
    for attempt in range(ATTEMPTS):
        asked = Generation(
            engine, prompt(20), SamplingParams(LENGTH, json_schema=schema), f"schema{attempt}"
        )
        until(lambda: running(server) == 1)
        engine.pause("keep")
        if not asked.chunks:
            return asked
        engine.resume()
    pytest.fail(f"{ATTEMPTS} texts were complete before the engine paused")


def test_a_text_under_a_schema_is_begun_anew_after_an_update(
    engine: VllmEngine, server: VllmServer, weights: Path
) -> None:
    asked = paused_in_the_middle(engine, server)
    engine.load_weights(weights, NEXT)
    engine.resume()
    assert asked.finish() == "length"
    assert len(asked.completion) == LENGTH
    assert asked.versions == [NEXT]


def test_prefixes_are_reused_under_the_same_weights_alone(
    engine: VllmEngine, weights: Path
) -> None:
    def reused(name: str) -> int:
        before = engine.health().reused_tokens
        Generation(engine, prompt(200, seed=9), SamplingParams(2), name).finish()
        until(lambda: engine.health().running == 0)
        return engine.health().reused_tokens - before

    assert reused("first") == 0
    # Each replica has prefixes of its own.
    assert any(reused(f"again-{number}") for number in range(4))
    engine.pause("keep")
    engine.load_weights(weights, NEXT)
    engine.resume()
    assert reused("third") == 0


def test_weights_of_another_form_are_rejected_and_change_nothing(
    engine: VllmEngine, weights: Path, tmp_path: Path
) -> None:
    tensors = load_file(weights / "model.safetensors")
    save_file(dict(list(tensors.items())[1:]), tmp_path / "model.safetensors")
    first = Generation(engine, prompt(20), LONG, "first")
    first.finish()
    engine.pause("keep")
    with pytest.raises(WeightsRejected, match="missing"):
        engine.load_weights(tmp_path, NEXT)
    engine.resume()
    second = Generation(engine, prompt(20), LONG, "second")
    second.finish()
    assert second.completion == first.completion
    assert engine.health().version == VERSION


def test_an_update_whose_worker_was_killed_in_the_middle_does_not_hold_the_next_one_up(
    server: VllmServer, plain: Callable[[int], PreTrainedModel], request: pytest.FixtureRequest
) -> None:
    begun = http.post(f"{server.url}/start_weight_update", timeout=30, trust_env=False)
    assert begun.status_code == httpx.codes.OK
    engine: VllmEngine = request.getfixturevalue("engine")
    asked = Generation(engine, prompt(20), SamplingParams(20), "asked")
    asked.finish()
    wanted = plain_logprobs(plain(VERSION), asked.tokens, 20)
    np.testing.assert_allclose(asked.logprobs, wanted, rtol=0, atol=TOLERANCE)


def running(server: VllmServer) -> int:
    """Return the number of requests that the server runs or has waiting."""
    lines = http.get(f"{server.url}/metrics", timeout=30, trust_env=False).text.splitlines()
    names = ("vllm:num_requests_running{", "vllm:num_requests_waiting{")
    return int(sum(float(line.split()[-1]) for line in lines if line.startswith(names)))
