"""KV of finished and running requests is reused by prompts that start with the same tokens; what is
computed again is told from what is new."""

from pathlib import Path

import numpy as np
import pytest

from seamlessflow.producers.rollout.engine.contract import SamplingParams
from seamlessflow.producers.rollout.engine.request import Request
from seamlessflow.producers.rollout.torch_engine.engine import TorchEngine
from seamlessflow.producers.rollout.torch_engine.kv_cache import KvCache
from seamlessflow.producers.rollout.torch_engine.rows import RowTable
from tests.builders.engines.torch_engine import StartEngine
from tests.builders.models import model, plain_logprobs, prompt, saved
from tests.builders.rollout.generation import Generation, as_bytes

SAMPLING = SamplingParams(40, seed=1)


def run(
    engine: TorchEngine, tokens: list[int], count: int = 12, request_id: str = "request"
) -> Generation:
    generation = Generation(engine, tokens, SamplingParams(count), request_id)
    generation.finish()
    return generation


def assert_plain(generation: Generation, seed: int = 0) -> None:
    expected = plain_logprobs(model(seed=seed), generation.tokens, len(generation.prompt))
    np.testing.assert_allclose(generation.logprobs, expected, rtol=0, atol=1e-4)


def test_the_next_turn_computes_only_what_is_new(start: StartEngine) -> None:
    engine = start(model())
    history = prompt(40)
    reused = 0
    for turn in range(5):
        answer = run(engine, history)
        assert_plain(answer)
        if turn:
            # All but the last sampled token, which was never an input.
            reused += len(history) - 9 - 1
        assert engine.health().reused_tokens == reused
        history = answer.tokens + prompt(9, seed=turn + 1)


def test_samples_of_one_prompt_share_its_kv(start: StartEngine) -> None:
    engine = start(model())
    shared = prompt(50)
    first = run(engine, shared)
    before = engine.health().reused_tokens
    others = [Generation(engine, shared, SamplingParams(15), f"r{i}") for i in range(6)]
    for each in others:
        each.finish()
        assert_plain(each)
    assert_plain(first)
    assert engine.health().reused_tokens - before == 6 * 49


def together(engine: TorchEngine, prompts: list[list[int]]) -> list[Generation]:
    """Submit all of these while the engine stands, so that it admits them at once."""
    engine.pause("keep")
    generations = [
        Generation(engine, each, SamplingParams(15, seed=seed), f"seed {seed}")
        for seed, each in enumerate(prompts)
    ]
    engine.resume()
    return generations


@pytest.mark.parametrize("prefill_tokens", [1024, 64, 16])
def test_equal_prompts_that_come_together_are_computed_once(
    prefill_tokens: int, start: StartEngine
) -> None:
    engine = start(model(), prefill_tokens=prefill_tokens)
    answers = together(engine, [prompt(50, group) for group in range(3) for _ in range(4)])
    for each in answers:
        each.finish()
        assert_plain(each)
    assert engine.health().reused_tokens == 3 * 3 * 50
    assert len({tuple(each.completion) for each in answers}) == len(answers)


def test_each_of_equal_prompts_is_sampled_as_if_it_were_alone(start: StartEngine) -> None:
    answers = together(start(model()), [prompt(50)] * 4)
    for each in answers:
        each.finish()
    for seed, each in enumerate(answers):
        alone = Generation(start(model()), prompt(50), SamplingParams(15, seed=seed))
        alone.finish()
        assert each.completion == alone.completion


def test_prompts_that_begin_alike_share_what_they_have_in_common(start: StartEngine) -> None:
    engine = start(model())
    trunk = prompt(60)
    prompts = [trunk + prompt(5 + i, seed=i + 1) for i in range(4)]
    answers = together(engine, [trunk, *prompts])
    for each in answers:
        each.finish()
        assert_plain(each)
    assert engine.health().reused_tokens == 4 * 60


def test_a_prompt_is_computed_even_if_the_equal_before_it_is_aborted(start: StartEngine) -> None:
    engine = start(model(), prefill_tokens=16)
    engine.pause("keep")
    first = Generation(engine, prompt(200), SAMPLING, "first")
    second = Generation(engine, prompt(200), SAMPLING, "second")
    engine.resume()
    engine.abort("first")
    first.finish()
    second.finish()
    assert_plain(second)


def test_turns_of_one_prompt_compute_it_once_more_under_new_weights(
    start: StartEngine, tmp_path: Path
) -> None:
    engine = start(model())
    engine.pause("keep")
    turns = [
        Generation(engine, prompt(50), SamplingParams(40, seed=i), f"turn {i}") for i in range(3)
    ]
    held = Generation(engine, prompt(50), SamplingParams(40, seed=3), "held", hold_at=10)
    engine.resume()
    held.pause_when_held("keep")
    engine.load_weights(saved(model(seed=1), tmp_path), 1)
    engine.sleep()
    engine.wake()
    before = engine.health().reused_tokens
    engine.resume()
    for each in (*turns, held):
        each.finish()
        new = each.versions.index(1)
        expected = plain_logprobs(model(seed=1), each.tokens, 50 + new)
        np.testing.assert_allclose(each.logprobs[new:], expected, rtol=0, atol=1e-4)
    assert engine.health().reused_tokens - before == 3 * 50


def test_a_fork_leaves_the_longer_branch_intact(start: StartEngine) -> None:
    engine = start(model())
    trunk = prompt(60)
    main = run(engine, trunk, 30)
    fork = run(engine, trunk[:40] + prompt(10, 1))
    before = engine.health().reused_tokens
    assert_plain(fork)
    extended = run(engine, main.tokens + prompt(5, 2))
    assert_plain(extended)
    assert engine.health().reused_tokens - before == 60 + 30 - 1


def test_a_prompt_that_ends_inside_what_is_cached_still_gets_its_own_logits(
    start: StartEngine,
) -> None:
    engine = start(model())
    main = run(engine, prompt(60), 30)
    for length in (1, 2, 60, 75, 89):
        assert_plain(run(engine, main.tokens[:length]))


def test_rows_are_taken_from_the_ones_released_longest_ago(start: StartEngine) -> None:
    engine = start(model(), max_running=2, max_rows=3)
    sessions = [prompt(30, seed) for seed in range(3)]
    turns = [run(engine, session) for session in sessions]
    run(engine, prompt(30, 9))
    before = engine.health().reused_tokens
    for index in (2, 1):
        assert_plain(run(engine, turns[index].tokens + prompt(4)))
    assert engine.health().reused_tokens - before == 2 * (30 + 12 - 1)


def test_reuse_under_churn_stays_exact(start: StartEngine) -> None:
    engine = start(model(), max_running=4, max_rows=6, prefill_tokens=48)
    histories = [prompt(10 + 7 * i, i) for i in range(8)]
    for turn in range(4):
        answers = [
            Generation(engine, history, SamplingParams(5 + 3 * i), f"{turn} {i}")
            for i, history in enumerate(histories)
        ]
        for each in answers:
            each.finish()
            assert_plain(each)
        histories = [each.tokens + prompt(6, turn) for each in reversed(answers)]
    assert engine.health().reused_tokens > 0


def test_new_weights_never_reuse_old_kv(start: StartEngine, tmp_path: Path) -> None:
    engine = start(model(seed=0))
    old = run(engine, prompt(40))
    engine.pause("keep")
    engine.load_weights(saved(model(seed=1), tmp_path), version=1)
    engine.resume()
    assert_plain(run(engine, old.tokens), seed=1)
    assert engine.health().reused_tokens == 0


def test_new_tokens_are_useful_and_a_reused_prefix_costs_nothing(start: StartEngine) -> None:
    engine = start(model())
    first = Generation(engine, prompt(20), SAMPLING)
    first.finish()
    Generation(engine, first.tokens + prompt(5, 1), SAMPLING).finish()

    health = engine.health()
    assert health.full_batch_seconds > 0 and health.recomputing_seconds == 0


def test_turns_that_are_kept_are_recomputed_under_new_weights(
    start: StartEngine, tmp_path: Path
) -> None:
    engine = start(model())
    kept = Generation(engine, prompt(20), SAMPLING, hold_at=10)
    kept.pause_when_held("keep")
    engine.load_weights(saved(model(seed=1), tmp_path), 1)
    assert engine.health().recomputing_seconds == 0
    engine.resume()
    kept.finish()
    assert engine.health().recomputing_seconds > 0


def test_a_turn_that_comes_from_another_worker_is_recomputed(start: StartEngine) -> None:
    engine = start(model())
    Generation(engine, prompt(20), SAMPLING, completion=[1, 2, 3]).finish()
    assert engine.health().recomputing_seconds > 0


def test_what_lacks_kv_that_it_had_counts_and_no_other_token() -> None:
    table = RowTable(KvCache(2, 40))
    rows = np.array([0])
    moved = Request.from_bytes(
        "r", as_bytes([1] * 10), as_bytes([2] * 4), SAMPLING, 0, lambda chunk: None
    )
    table.admit(moved)
    assert table.computed_before(rows, np.array([14])) == 13
    table.cached[0] = 12
    assert table.computed_before(rows, np.array([2])) == 1
    table.cached[0] = 14
    table.append(rows, np.array([3]))
    assert table.computed_before(rows, np.array([1])) == 0
    table.invalidate()
    assert table.computed_before(rows, np.array([15])) == 14
