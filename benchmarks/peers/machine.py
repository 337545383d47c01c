"""Speed of this machine's matrix products and memory, in float32, as JSON.

    python -m benchmarks.peers.machine THREADS

An update is mostly products with many rows; a decoding pass reads all weights once, so with few
rows memory bounds it. The best of several times is what the machine can do.
"""

import json
import sys
import time
from collections.abc import Callable

import torch

_TIMES = 7
_SQUARE = 2048
_ROWS = (2048, 576, 1536)
"""Rows, inputs and outputs of a product in SmolLM2-135M's feed-forward layer."""
_READ_BYTES = 2**29


def measure() -> None:
    """Print one line of JSON."""
    threads = int(sys.argv[1])
    torch.set_num_threads(threads)
    print(
        json.dumps(
            {
                "threads": threads,
                "square_gflops": round(_gflops(_SQUARE, _SQUARE, _SQUARE), 1),
                "layer_gflops": round(_gflops(*_ROWS), 1),
                "read_gb_a_s": round(_read_gb_a_s(), 1),
            }
        )
    )


def _gflops(rows: int, inner: int, columns: int) -> float:
    left, right = torch.rand(rows, inner), torch.rand(inner, columns)
    return 2 * rows * inner * columns / _best_s(lambda: left @ right) / 1e9


def _read_gb_a_s() -> float:
    """Return how fast a product with a vector reads its matrix."""
    side = int((_READ_BYTES / 4) ** 0.5)
    matrix, vector = torch.rand(side, side), torch.rand(side)
    return 4 * side * side / _best_s(lambda: matrix @ vector) / 1e9


def _best_s(work: Callable[[], object]) -> float:
    seconds = []
    for _ in range(_TIMES):
        began = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - began)
    return min(seconds)


if __name__ == "__main__":
    measure()
