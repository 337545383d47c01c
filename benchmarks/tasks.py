"""Tasks in a file of JSON lines: time and memory to open it, and the time of a draw.

python -m benchmarks tasks [--tasks 1000000]
"""

import argparse
import json
import resource
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from scheduler.tasks.file import read

_DRAWS = 10_000
_KB = 1024


def main(arguments: Sequence[str]) -> None:
    """Print the figures as one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=1_000_000)
    count = parser.parse_args(arguments).tasks
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tasks.jsonl"
        with path.open("w", encoding="utf-8") as file:
            for number in range(count):
                file.write(f'{{"id": "task-{number}", "prompt": "{"x" * 200}"}}\n')
        before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        began_s = time.perf_counter()
        source = read(path)
        open_s = time.perf_counter() - began_s
        used_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kb
        began_s = time.perf_counter()
        for number in range(_DRAWS):
            source.draw(number)
        draw_us = 1e6 * (time.perf_counter() - began_s) / _DRAWS
    found = {"tasks": count, "open_s": open_s, "memory_mb": used_kb / _KB, "draw_us": draw_us}
    print(json.dumps({name: round(value, 2) for name, value in found.items()}))
