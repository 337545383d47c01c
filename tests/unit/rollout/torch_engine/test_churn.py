"""Everything at once: requests come, end and are aborted while weights change."""

import random
import threading
from pathlib import Path

import numpy as np
import pytest

from seamlessflow.producers.rollout.engine.contract import SamplingParams
from seamlessflow.producers.rollout.torch_engine.engine import TorchEngine
from tests.builders.engines.torch_engine import StartEngine
from tests.builders.models import TOKEN_BYTES, model, plain_logprobs, prompt, saved
from tests.builders.rollout.generation import DEADLINE_S, Generation

VERSIONS = 3


def submit_and_abort(engine: TorchEngine, client: int, generations: list[Generation]) -> None:
    choose = random.Random(client)
    for number in range(12):
        tokens = prompt(choose.randint(1, 90), seed=choose.randint(0, 3))
        sampling = SamplingParams(choose.randint(1, 60), seed=number, stop_token_ids=(7, 8))
        generations.append(Generation(engine, tokens, sampling, f"{client} {number}"))
        if choose.random() < 0.3:
            engine.abort(f"{client} {choose.randint(0, number)}")


@pytest.mark.parametrize("kv_tokens", [600, 8 * 512], ids=["crowded", "room for all"])
def test_every_request_ends_once_and_every_token_is_of_the_version_it_names(
    kv_tokens: int, start: StartEngine, tmp_path: Path
) -> None:
    models = [model(seed=seed) for seed in range(VERSIONS)]
    directories = [saved(each, tmp_path / str(seed)) for seed, each in enumerate(models)]
    kv_bytes = kv_tokens * TOKEN_BYTES
    engine = start(model(seed=0), max_running=5, max_rows=8, prefill_tokens=64, kv_bytes=kv_bytes)
    witness = Generation(engine, prompt(30), SamplingParams(400), "witness", hold_at=10)
    generations = [witness]
    clients = [
        threading.Thread(target=submit_and_abort, args=(engine, client, generations))
        for client in range(4)
    ]
    for client in clients:
        client.start()
    witness.pause_when_held("keep")
    for version in range(1, VERSIONS):
        engine.pause("keep")
        engine.load_weights(directories[version], version)
        if version == 1:
            engine.sleep()
            engine.wake()
        engine.resume()
    for client in clients:
        client.join(DEADLINE_S)
    assert len(generations) == 49
    for each in generations:
        assert each.finish() in ("stop", "length", "abort")
        assert each.versions == sorted(each.versions)
        expected = [plain_logprobs(source, each.tokens, len(each.prompt)) for source in models]
        by_version = [expected[version][token] for token, version in enumerate(each.versions)]
        np.testing.assert_allclose(each.logprobs, by_version, rtol=0, atol=1e-4)
    assert witness.versions[0] == 0
    assert witness.versions[-1] == VERSIONS - 1
    health = engine.health()
    assert (health.running, health.waiting, health.error) == (0, 0, None)
    assert health.kv_bytes <= kv_bytes
