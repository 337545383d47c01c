"""Samplers: CPU time to choose among many tasks, and to index a task file.

    python -m benchmarks samplers [--tasks 1000000] [--drawn 100000] [--lines 100000]

A choice takes 64 tasks, for groups of 8 samples; its figure is the median over some. `drawn` tasks
have statistics, and one in four of them passed whole. `index_us`: microseconds for each line in a
file.
"""

import argparse
import json
import random
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median

from seamlessflow.scheduler.sampling.ask import Ask, checked_choices
from seamlessflow.scheduler.sampling.index import TaskIndex, indexed
from seamlessflow.scheduler.sampling.registry import SAMPLERS
from seamlessflow.scheduler.state.arms import Arm, Arms
from seamlessflow.scheduler.state.ledger import source_arm, task_arm
from seamlessflow.scheduler.tasks.file import TaskFile
from seamlessflow.scheduler.tasks.source import TaskRow

_CHOICES = 9
_COUNT = 64
_SAMPLES = 8
_LEVELS = 5


def main(argv: Sequence[str]) -> None:
    """Print one line of JSON."""
    parser = argparse.ArgumentParser(prog="benchmarks samplers", description=__doc__)
    for name, value in {"tasks": 1_000_000, "drawn": 100_000, "lines": 100_000}.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    asked = parser.parse_args(argv)
    figures = {**_choices(asked.tasks, asked.drawn), **_index(asked.lines)}
    print(json.dumps({"benchmark": "samplers", **vars(asked), **figures}))


def _choices(tasks: int, drawn: int) -> dict[str, float]:
    """Return a choice's milliseconds, by sampler."""
    rows = [
        TaskRow(f"task-{number}", b"{}", {"level": str(number % _LEVELS)})
        for number in range(tasks)
    ]
    arms = _arms(tasks, drawn)
    ask = _ask(indexed(rows, "train", None), arms)
    return {f"{name}_ms": _milliseconds(name, ask) for name in SAMPLERS}


def _arms(tasks: int, drawn: int) -> Arms:
    """Return statistics for drawn tasks, and for all pools."""
    source = random.Random(0)  # nosec B311 # repeatable tasks
    arms = Arms()
    for number in source.sample(range(tasks), drawn):
        passed = source.choice([0, 3, 5, _SAMPLES])
        arm = Arm(
            passed=float(passed),
            failed=float(_SAMPLES - passed),
            ready=1,
            equal=int(passed in (0, _SAMPLES)),
            last_passed=passed,
            last_counted=_SAMPLES,
        )
        arms.put(task_arm(f"task-{number}"), arm)
    for name in (source_arm("train"), *(f"pool:level:{level}" for level in range(_LEVELS))):
        arms.put(name, Arm(passed=1_000.0, failed=1_000.0, ready=drawn))
    return arms


def _ask(tasks: TaskIndex, arms: Arms) -> Ask:
    return Ask(
        count=_COUNT,
        draw=0,
        samples=_SAMPLES,
        random=random.Random(0),  # nosec B311 # repeatable choices
        source="train",
        pool=arms.arm(source_arm("train")),
        tasks=tasks,
        arms=arms,
        under_way=frozenset(tasks.key(place) for place in range(0, len(tasks), len(tasks) // 128)),
    )


def _milliseconds(name: str, ask: Ask) -> float:
    """Return the CPU time of a choice and its check."""

    def choose() -> None:
        asked = replace(ask)  # its candidates are drawn anew
        checked_choices(asked, SAMPLERS[name](asked))

    return round(1e3 * median(_cpu_s(choose) for _ in range(_CHOICES)), 1)


def _index(lines: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "tasks.jsonl"
        with path.open("w") as file:
            for number in range(lines):
                task = {"id": f"task-{number}", "metadata": {"level": number % _LEVELS}}
                file.write(json.dumps({**task, "question": "x" * 160}) + "\n")
        tasks = TaskFile(path)
        best_s = min(_cpu_s(lambda: indexed(tasks, "train", None)) for _ in range(3))
        return {"index_us": round(1e6 * best_s / lines, 1)}


def _cpu_s(call: Callable[[], object]) -> float:
    began = time.process_time()
    call()
    return time.process_time() - began
