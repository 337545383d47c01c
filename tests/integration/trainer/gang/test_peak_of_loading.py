"""No rank of a gang ever holds the whole model, not while it loads either."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.builders.models import config, random_model, saved

TIMEOUT_S = 120
MEBIBYTE = 1 << 20
ALLOWANCE = 24 * MEBIBYTE
"""Of the communicator and its threads."""


@pytest.mark.slow
def test_a_ranks_peak_is_its_shards_and_a_slice_of_the_largest_tensor(tmp_path: Path) -> None:
    shape = {"hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 6}
    large = random_model(config("qwen3", **shape, vocab_size=4096, tie_word_embeddings=True))
    sizes = [of.numel() * of.element_size() for of in large.parameters()]
    saved(large, tmp_path)
    assert sum(sizes) > 200 * MEBIBYTE
    for rank in peaks(tmp_path, 2):
        assert sum(sizes) / 2 < rank < sum(sizes) / 2 + max(sizes) / 2 + ALLOWANCE


def peaks(directory: Path, ranks: int) -> list[int]:
    """Return the rise of each rank's peak of resident memory, in bytes."""
    module = "tests.integration.trainer.gang.peak_of_loading"

    def start(rank: int, *place: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", module, str(directory), str(rank), str(ranks), *place]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    first = start(0)
    assert first.stdout is not None
    place = first.stdout.readline().strip()
    started = [first, *(start(rank, place) for rank in range(1, ranks))]
    return [int(process.communicate(timeout=TIMEOUT_S)[0].split()[-1]) for process in started]
