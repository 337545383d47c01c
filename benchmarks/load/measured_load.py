"""One run of the load generator, and the CPU that processes use meanwhile."""

import json
from collections.abc import Mapping
from typing import Any

from benchmarks.load.children import Children, cpu_s


def run_load(
    children: Children, orders: Mapping[str, object], pids: Mapping[str, int]
) -> tuple[dict[str, Any], dict[str, float]]:
    """Return the generator's result, and the seconds of CPU of each process in its measured time.

    `orders` are the members of `http_load.Load`. Raises `RuntimeError` if a process has ended.
    """
    with children.start("load", "benchmarks.load.http_load", orders) as load:
        assert load.stdout is not None
        assert load.stdout.readline() == "begin\n", "the load generator ended"
        before = {name: cpu_s(pid) for name, pid in pids.items()}
        assert load.stdout.readline() == "end\n", "the load generator ended"
        used = {name: cpu_s(pid) - before[name] for name, pid in pids.items()}
        result: dict[str, Any] = json.loads(load.stdout.readline())
    children.check()
    return result, used
