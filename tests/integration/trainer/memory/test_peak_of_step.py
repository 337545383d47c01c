"""Memory of a rank by `seamlessflow plan`, against the peak of one that trains."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from seamlessflow.infra.device_model.model_shape import read_shape
from seamlessflow.machine import total
from seamlessflow.memory.training import RankShape, rank_memory
from seamlessflow.trainer.settings import TrainerSection
from tests.builders.models import config, random_model, saved

TIMEOUT_S = 600
LONG = pytest.mark.soak
"""Cases whose parts others measure too."""
MARGIN = 0.2
"""Largest share by which a peak may differ from the formula."""
AT_ONCE = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
"""Variables with which freed memory goes back to the system, so that tensors alone count."""
SHAPE = {
    "hidden_size": 256,
    "intermediate_size": 768,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 8192,
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    built = random_model(config("qwen3", **SHAPE, vocab_size=8192, tie_word_embeddings=False))
    return saved(built, tmp_path_factory.mktemp("model"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tokens", "settings"),
    [
        pytest.param(64, {}, id="weights"),
        pytest.param(3072, {}, marks=LONG, id="activations"),
        pytest.param(4096, {"gradient_checkpointing": True}, marks=LONG, id="recomputed"),
        pytest.param(512, {"attention": "eager"}, marks=LONG, id="eager"),
        pytest.param(4096, {"layout": "tree"}, marks=LONG, id="tree"),
        pytest.param(2048, {"dtype": "bfloat16"}, id="autocast"),
        pytest.param(
            2048, {"dtype": "bfloat16", "master_dtype": "bfloat16"}, marks=LONG, id="half"
        ),
        pytest.param(2048, {"backend": "fsdp2", "ranks": 2}, marks=LONG, id="sharded"),
        pytest.param(2048, {"backend": "fsdp2", "ranks": 2, "dtype": "bfloat16"}, id="mixed"),
        pytest.param(
            2048, {"backend": "megatron", "dtype": "bfloat16"}, marks=LONG, id="megatron-mixed"
        ),
        pytest.param(
            2048,
            {
                "backend": "megatron",
                "ranks": 2,
                "megatron": {"tensor_parallel": 2},
                "dtype": "bfloat16",
            },
            marks=LONG,
            id="megatron-layers",
        ),
    ],
)
def test_the_peak_of_a_step_is_that_of_the_formula(
    tokens: int, settings: Mapping[str, Any], model: Path
) -> None:
    values = {"device": "cpu", "threads": 1, "mismatch_memory_mb": 0, "layout": "padded"}
    values |= settings
    trainer = TrainerSection.model_validate(values)
    rank = RankShape(read_shape(model), tokens, tokens, on_gpu=False, leaves=False)
    expected = total(rank_memory(rank, trainer).device_parts)
    for peak in peaks(model, values, tokens):
        assert peak == pytest.approx(expected, rel=MARGIN)


def peaks(directory: Path, settings: Mapping[str, Any], tokens: int) -> list[int]:
    """Return the rise of each rank's resident memory in a step, in bytes."""
    module = "tests.integration.trainer.memory.peak_of_step"

    def start(rank: int, *place: str) -> subprocess.Popen[str]:
        rank_settings = json.dumps({**settings, "rank": rank})
        command = [sys.executable, "-m", module, str(directory), rank_settings, str(tokens), *place]
        environment = {**os.environ, **AT_ONCE}
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)

    started = [start(0)]
    assert started[0].stdout is not None
    if settings.get("backend", "torch") != "torch":
        place = started[0].stdout.readline().strip()
        started += [start(rank, place) for rank in range(1, settings.get("ranks", 1))]
    return [int(process.communicate(timeout=TIMEOUT_S)[0].split()[-1]) for process in started]
