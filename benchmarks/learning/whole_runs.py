"""Trainings on the game Trail through the whole system, one for each kind of method.

    python -m benchmarks whole_runs [--runs turn-level,critic] [--steps 50] [--seed 0] [--out DIR]

`seamlessflow train` with its embedded Kafka, gateway, manager, scheduler, a worker that rolls out
and trains in turns, and agents that play the game over HTTP; every run of as many sessions a step,
from the same model and tasks. The teacher of the distillation is the policy that turn-level credit
made. Each is evaluated on the held-out tasks before its first step and behind its last.

A run that has ended is not made again. In DIR: the runs, and `whole_runs.png` with their rewards.
Progress and a table go to standard error. `first10`, `last10`: mean reward of the first and the
last ten steps; `before`, `after`: of the evaluations.
"""

import argparse
import csv
import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from transformers.utils import logging as transformers_logging

from benchmarks.learning.curves import prepared
from benchmarks.learning.methods import GROUP_SIZE, GROUPS, METHODS, TEACHER
from benchmarks.load.children import run_module
from benchmarks.scheduling.reward_curves import draw_rewards
from benchmarks.trail.configuration import trail_run, write_run
from seamlessflow.infra.broker.broker import Broker
from seamlessflow.infra.kafka.unreadable import Skipped
from seamlessflow.infra.kafka.whole_topic import read_topic
from seamlessflow.reports.reward_curve import StepFacts, session_facts, step_facts
from seamlessflow.schemas.records import Trajectory
from seamlessflow.schemas.topics import CONTROL, TRAJECTORIES

TEACHING = "turn-level"
"""The run whose last weights are the teacher."""
RUNS: Mapping[str, Mapping[str, Any]] = {
    TEACHING: METHODS["turn"].trainer,
    "critic": METHODS["gae"].trainer,
    "mini-batches": {"mini_batches": 2, "epochs": 2, "loss": {"correction": "tis"}},
    "distillation": METHODS["distill"].trainer,
}
"""Settings of `trainer`, beside those that all share."""
_FIGURES = ("first10", "last10", "before", "after")


def main(argv: Sequence[str]) -> None:
    """Print one line of JSON."""
    asked = _arguments(argv)
    names = asked.runs.split(",") if asked.runs else list(RUNS)
    if unknown := sorted(set(names) - RUNS.keys()):
        sys.exit(f"no run {', '.join(unknown)}; there are {', '.join(RUNS)}")
    out = asked.out.resolve()
    # Of the warm-up; a run has processes of its own.
    torch.set_num_threads(1)
    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    if "distillation" in names and TEACHING not in names:
        names = [TEACHING, *names]
    rows = {name: _row(name, asked.steps, asked.seed, out) for name in names}
    draw_rewards(
        {name: _steps(out / name) for name in names},
        out / "whole_runs.png",
        title="Trail, through the whole system: reward of each step",
        steps="optimizer step",
        reward="mean reward of the sampled sessions",
    )
    print(_table(rows), file=sys.stderr)
    print(json.dumps({"benchmark": "whole_runs", "out": str(out), "runs": rows}))


def configuration(name: str, steps: int, seed: int, out: Path) -> Mapping[str, Any]:
    """Return the configuration of a run. Raises `KeyError` for no run."""
    data, trainer = prepared(seed, out), dict(RUNS[name])
    if trainer.get("teacher") == TEACHER:
        trainer["teacher"] = str(out / TEACHING / "weights" / "final")
    changes = {
        "run": {"steps": steps, "groups_per_step": GROUPS, "group_size": GROUP_SIZE},
        "pacing": {"seed": seed},
        "evaluation": {"tasks": str(data / "tasks" / "eval.jsonl"), "every": steps},
        "trainer": {"seed": seed, **trainer},
    }
    return trail_run(out / name, data, changes)


def _arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks whole_runs", description=__doc__)
    parser.add_argument("--runs", default="", help="some of all runs, with commas")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path(".seamlessflow/whole_runs"))
    return parser.parse_args(argv)


def _row(name: str, steps: int, seed: int, out: Path) -> Mapping[str, Any]:
    """Return the figures of a run, from its files or after training it."""
    file = out / f"{name}.json"
    if not file.exists():
        began_s = time.monotonic()
        run_module(
            "seamlessflow",
            "train",
            "--config",
            str(write_run(configuration(name, steps, seed, out))),
        )
        told = json.loads((out / name / "summary.json").read_text(encoding="utf-8"))
        evaluated = evaluations(out / name / "metrics.csv")
        row = {
            "steps": told["steps"],
            "first10": told["reward_first10"],
            "last10": told["reward_last10"],
            "before": evaluated[0],
            "after": evaluated[-1],
            "tokens_trained": told["tokens_trained"],
            "train_s": told["train_wall_s"],
            "took_s": round(time.monotonic() - began_s),
            "symptoms": told["symptoms"],
        }
        file.write_text(json.dumps(row), encoding="utf-8")
    read: Mapping[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return read


def evaluations(file: Path) -> Sequence[float]:
    """Return the mean rewards of the evaluations, oldest first."""
    with file.open(encoding="utf-8") as lines:
        means = [row["eval_reward_mean"] for row in csv.DictReader(lines)]
    return [float(mean) for mean in means if mean]


def _steps(out: Path) -> Sequence[StepFacts]:
    with Broker(out / "kafka", short_lived=True) as broker:
        control, trajectories = (
            [received.record for received in read_topic(broker.settings, topic, Skipped())]
            for topic in (CONTROL, TRAJECTORIES)
        )
    played = [one for one in trajectories if isinstance(one, Trajectory)]
    return step_facts(control, session_facts(played))


def _table(rows: Mapping[str, Mapping[str, Any]]) -> str:
    """Return a Markdown table."""
    lines = [
        "| run | reward, first ten steps | last ten | held-out before | after | trained tokens "
        "| training | all |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, row in rows.items():
        means = " | ".join(f"{row[figure]:.3f}" for figure in _FIGURES)
        lines.append(
            f"| {name} | {means} | {row['tokens_trained']:,} | {row['train_s']:.0f} s "
            f"| {row['took_s']} s |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main(sys.argv[1:])
