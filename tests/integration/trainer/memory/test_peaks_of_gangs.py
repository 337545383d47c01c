"""No rank of a gang ever holds the whole model, not while it loads, publishes or saves either."""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from seamlessflow.trainer.backends.sharded.tensor_files import MOST_ELEMENTS
from tests.builders.models import config, random_model, saved

TIMEOUT_S = 300
MEBIBYTE = 1 << 20
ALLOWANCE = 24 * MEBIBYTE
"""Of the communicator and its threads."""
SLICE = 4 * MOST_ELEMENTS
"""Bytes of float32 that are converted or moved at a time."""


GANGS = [
    pytest.param({"backend": "fsdp2"}, id="fsdp2"),
    pytest.param(
        {"backend": "megatron", "megatron": {"tensor_parallel": 2}},
        marks=pytest.mark.soak,
        id="megatron",
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize("gang", GANGS)
def test_a_ranks_peak_is_its_shards_and_a_slice_of_the_largest_tensor(
    gang: Mapping[str, Any], tmp_path: Path
) -> None:
    sizes = large(tmp_path)
    for (rank,) in peaks(tmp_path, gang, "peak_of_loading"):
        assert sum(sizes) / 2 < rank < sum(sizes) / 2 + max(sizes) / 2 + ALLOWANCE


@pytest.mark.soak
@pytest.mark.parametrize("gang", GANGS)
def test_a_rank_publishes_by_slices_and_saves_one_copy_of_its_shards(
    gang: Mapping[str, Any], tmp_path: Path
) -> None:
    sizes = large(tmp_path)
    shards = 3 * sum(sizes) / 2  # weights and two moments
    for published, saving in peaks(tmp_path, gang, "peak_of_writing"):
        assert published < 2 * SLICE + ALLOWANCE
        assert shards - ALLOWANCE < saving < shards + SLICE + ALLOWANCE


def large(directory: Path) -> list[int]:
    """Write a model of more than 200 MiB; return the bytes of its tensors."""
    shape = {"hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 6}
    made = random_model(config("qwen3", **shape, vocab_size=4096, tie_word_embeddings=True))
    sizes = [tensor.numel() * tensor.element_size() for tensor in made.parameters()]
    assert sum(sizes) > 200 * MEBIBYTE
    saved(made, directory)
    return sizes


def peaks(directory: Path, gang: Mapping[str, Any], name: str) -> list[list[int]]:
    """Return what each of two ranks measured: rises of its peak of resident memory, in bytes."""
    module = f"tests.integration.trainer.memory.{name}"

    def start(rank: int, *place: str) -> subprocess.Popen[str]:
        rank_settings = {**gang, "rank": rank, "ranks": 2, "device": "cpu", "threads": 1}
        command = [sys.executable, "-m", module, str(directory), json.dumps(rank_settings), *place]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    first = start(0)
    assert first.stdout is not None
    started = [first, start(1, first.stdout.readline().strip())]
    outputs = [process.communicate(timeout=TIMEOUT_S)[0].splitlines() for process in started]
    return [[int(number) for number in lines[-1].split()] for lines in outputs]
