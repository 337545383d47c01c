"""Runs of the demo's task whose batches have an imposed age, one after the other, resumable."""

import csv
import json
import shutil
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean

from benchmarks.load.children import run_module
from seamlessflow.demo.configuration import (
    AGENTS,
    ASSIGNMENT_TIMEOUT_S,
    GROUPS,
    KV_BYTES,
    MAX_CONTEXT,
    OPTIMIZER,
    START_TIMEOUT_S,
    TIMEOUTS,
)

RESULT = "result.json"
_WORKERS = ({"id": "w0", "tags": ["rollout"]}, {"id": "w1", "tags": ["train"]})


@dataclass(frozen=True, slots=True)
class AgedRun:
    """A run: the age of its batches in optimizer steps, the loss, the seed."""

    age: int
    loss: str
    seed: int
    steps: int

    @property
    def name(self) -> str:
        """Name of its directory."""
        return f"{self.loss}-age{self.age}-seed{self.seed}-steps{self.steps}"


@dataclass(frozen=True, slots=True)
class AgedResult:
    """A run that has ended: its rewards by step, and the age that was measured."""

    run: AgedRun
    measured_age: float
    """Mean staleness of trained tokens, over the steps from which on it can be `run.age`."""
    rewards: tuple[float, ...]
    took_s: float


def result(run: AgedRun, out: Path) -> AgedResult:
    """Return the result of a run, from its file or after training it.

    Raises `CalledProcessError`.
    """
    file = out / run.name / RESULT
    if not file.exists():
        began_s = time.monotonic()
        shutil.rmtree(file.parent, ignore_errors=True)  # one that was cut off begins anew
        _train(run, file.parent, _prepared(run.seed, out))
        found = read(run, file.parent / "metrics.csv", time.monotonic() - began_s)
        draft = file.with_suffix(".part")
        draft.write_text(json.dumps(asdict(found)), encoding="utf-8")
        draft.replace(file)
    told = json.loads(file.read_text(encoding="utf-8"))
    return AgedResult(run, told["measured_age"], tuple(told["rewards"]), told["took_s"])


def read(run: AgedRun, metrics: Path, took_s: float) -> AgedResult:
    """Return the result of a run by its table of metrics."""
    with metrics.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    ages = [float(row["staleness_mean"]) for row in rows if row["staleness_mean"]]
    rewards = tuple(float(row["reward_mean"]) for row in rows if row["reward_mean"])
    return AgedResult(run, fmean(ages[run.age :] or ages), rewards, round(took_s, 1))


def configuration(run: AgedRun, out: Path, data: Path) -> Mapping[str, object]:
    """Return the configuration of a run, with model and tasks from `data`."""
    return {
        "out": str(out),
        "workers": _WORKERS,
        "policy": {
            "model": str(data / "model"),
            "renderer": {"name": "qwen3"},
            "max_context": MAX_CONTEXT,
        },
        "run": {"id": "aged", "steps": run.steps, "lag": run.age, **GROUPS},
        "pacing": {"tasks": str(data / "tasks" / "train.jsonl"), "seed": run.seed, **TIMEOUTS},
        "agents": AGENTS,
        "trainer": {
            "optimizer": OPTIMIZER,
            "seed": run.seed,
            "threads": 1,
            "loss": {"name": run.loss},
        },
        "rollout": {
            "engine": "torch",
            "capacity": 64,
            "torch": {"threads": 1, "kv_bytes": KV_BYTES},
        },
        "scheduler": {
            "policy": "benchmarks.load.aged:aged",
            "assignment_timeout_s": ASSIGNMENT_TIMEOUT_S["torch"],
        },
        "start_timeout_s": START_TIMEOUT_S,
    }


def _prepared(seed: int, out: Path) -> Path:
    """Return the directory of the seed's model and tasks; the same in all runs of the seed."""
    data = out / f"data-seed{seed}"
    if not (data / "warmup.json").exists():
        run_module("seamlessflow.demo.prepare", str(data), "--seed", str(seed))
    return data


def _train(run: AgedRun, folder: Path, data: Path) -> None:
    folder.mkdir(parents=True)
    config = folder / "run.yaml"  # JSON is YAML
    config.write_text(json.dumps(configuration(run, folder, data)), encoding="utf-8")
    run_module("seamlessflow", "train", "--config", str(config))


def runs(
    ages: tuple[int, ...], losses: tuple[str, ...], seeds: int, steps: int
) -> Iterator[AgedRun]:
    """Yield the runs; all of the first seed come first."""
    for seed in range(seeds):
        for age in ages:
            for loss in losses:
                yield AgedRun(age, loss, seed, steps)
