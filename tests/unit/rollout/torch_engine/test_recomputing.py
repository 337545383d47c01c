"""Passes over tokens whose KV was computed before are told from passes over new ones."""

from pathlib import Path

import numpy as np

from producers.rollout.engine.contract import SamplingParams
from producers.rollout.engine.request import Request
from producers.rollout.torch_engine.kv_cache import KvCache
from producers.rollout.torch_engine.rows import RowTable
from tests.builders.engines.torch_engine import StartEngine
from tests.builders.models import model, prompt, saved
from tests.builders.rollout.generation import Generation, as_bytes

SAMPLING = SamplingParams(40, seed=1)


def test_new_tokens_are_useful_and_a_reused_prefix_costs_nothing(start: StartEngine) -> None:
    engine = start(model())
    first = Generation(engine, prompt(20), SAMPLING)
    first.finish()
    Generation(engine, first.tokens + prompt(5, 1), SAMPLING).finish()

    found = engine.health()
    assert found.full_batch_seconds > 0 and found.recomputing_seconds == 0


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
    one = np.array([0])
    moved = Request.of("r", as_bytes([1] * 10), as_bytes([2] * 4), SAMPLING, 0, lambda chunk: None)
    table.admit(moved)
    assert table.computed_before(one, np.array([14])) == 13
    table.cached[0] = 12
    assert table.computed_before(one, np.array([2])) == 1
    table.cached[0] = 14
    table.append(one, np.array([3]))
    assert table.computed_before(one, np.array([1])) == 0
    table.invalidate()
    assert table.computed_before(one, np.array([15])) == 14
