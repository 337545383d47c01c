"""This project beside TRL's `GRPOTrainer`: the same model, tasks, groups and limits, on a CPU.

    python -m benchmarks peers [--shape single|turns] [--sides trl,default,tree] [--rounds 1]
        [--steps 4] [--groups N] [--group-size N] [--model DIR] [--threads 2] [--vllm] [--out DIR]

Sides: trl, and from this project default, in-turns (lag 0), tree, as-shipped (groups with equal
rewards are not computed), vllm. They run one after the other, round by round, each in its own
processes, with a warm-up step. Each finished run is a file in DIR and is not made again, so that a
comparison that was cut off goes on. In DIR at the end: the table `SHAPE.md`, and `SHAPE.json`.
Progress and the table go to standard error. `scripts/peers` installs TRL, `scripts/real-model`
makes the model.
"""

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from benchmarks.load.children import ROOT
from benchmarks.peers.result import figures, table
from benchmarks.peers.runs import (
    SIDES,
    VLLM,
    SideFailed,
    commit,
    measured_machine,
    measured_run,
    prepare,
    real_model,
)
from benchmarks.peers.shape import FURTHER_STEPS, MOST_TASKS, ROWS, SHAPES, Shape, Work

_OUT = ROOT / ".seamlessflow" / "peers"


def main(argv: Sequence[str]) -> None:
    """Print one line of JSON."""
    asked = _parser().parse_args(argv)
    sides = [*asked.sides.split(","), *([VLLM] if asked.vllm else [])]
    if unknown := [side for side in sides if side not in SIDES]:
        sys.exit(f"--sides {unknown[0]}: must be of {', '.join(SIDES)}")
    folder = asked.out.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    try:
        work = _work(asked)
        prepare(sides)
        machine = kept(
            folder / f"{asked.shape}-machine.json", work, lambda: measured_machine(asked.threads)
        )
        runs = _all_runs(folder, asked.shape, sides, asked.rounds, work)
    except SideFailed as error:
        sys.exit(f"benchmarks peers: {error}")
    rows = [figures(of_side) for of_side in runs.values()]
    result = {"benchmark": "peers", "work": asdict(work), "machine": machine, "sides": rows}
    (folder / f"{asked.shape}.md").write_text(table(rows), encoding="utf-8")
    (folder / f"{asked.shape}.json").write_text(json.dumps(result, indent=2) + "\n")
    print(table(rows), file=sys.stderr)
    print(json.dumps(result))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="benchmarks peers",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--shape", choices=SHAPES, default="single")
    parser.add_argument("--sides", default="trl,default,tree", help="with commas")
    parser.add_argument("--vllm", action="store_true", help="also the side vllm")
    parser.add_argument("--rounds", type=int, default=1, help="runs of each side")
    parser.add_argument("--steps", type=int, default=4, help="measured steps of a run")
    parser.add_argument("--groups", type=int, help="groups of a step, instead of the shape's")
    parser.add_argument("--group-size", type=int, help="sessions of a group, likewise")
    parser.add_argument("--model", type=Path, help="a directory, instead of SmolLM2-135M")
    parser.add_argument("--threads", type=int, default=2, help="of a torch operation")
    parser.add_argument("--lr", type=float, default=1e-6)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=_OUT)
    return parser


def _work(asked: argparse.Namespace) -> Work:
    """Return the work for all sides; a run gets its directory later. Raises `SideFailed`."""
    usual: Shape = SHAPES[asked.shape]
    shape = replace(
        usual,
        groups=asked.groups or usual.groups,
        group_size=asked.group_size or usual.group_size,
    )
    if shape.sessions % ROWS:
        raise SideFailed(f"--groups times --group-size: must be a multiple of {ROWS}")
    most = MOST_TASKS // shape.groups - FURTHER_STEPS
    if not 0 < asked.steps <= most:
        raise SideFailed(f"--steps {asked.steps}: must be 1 to {most}, so that no task comes twice")
    model = asked.model.absolute() if asked.model else real_model()
    return Work(str(model), shape, asked.steps, asked.threads, asked.lr, asked.seed, out="")


def _all_runs(
    folder: Path, shape: str, sides: Sequence[str], rounds: int, work: Work
) -> Mapping[str, Sequence[Mapping[str, Any]]]:
    """Return all runs' results by side. Raises `SideFailed`."""
    runs: dict[str, list[Mapping[str, Any]]] = {side: [] for side in sides}
    for number in range(1, rounds + 1):
        for side, results in runs.items():
            name = f"{shape}-{side}-{number}"
            print(f"{name}: round {number} of {rounds}", file=sys.stderr)
            placed = replace(work, out=str(folder / name))
            results.append(
                kept(
                    folder / f"{name}.json",
                    work,
                    lambda side=side, placed=placed: measured_run(side, placed),  # type: ignore[misc]
                )
            )
            print(table([figures(results)]), file=sys.stderr)
    return runs


def kept(file: Path, work: Work, make: Callable[[], Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return a result from its file, or make and write it.

    Raises `SideFailed` if the file is from other work, or from another commit.
    """
    made_of = {"commit": commit(), "work": asdict(work)}
    if file.exists():
        result: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        if {name: result[name] for name in made_of} != made_of:
            raise SideFailed(
                f"{file} is of other options or another commit: remove it, or name another --out"
            )
        return result
    result = {**made_of, **make()}
    draft = file.with_suffix(".part")
    draft.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    draft.replace(file)
    return result
