"""Pipelines compared: colocated, disaggregated synchronous, one step off, multiplexed.

    python -m benchmarks pipelines [--out DIR] [--steps 12] [--devices 64] [--rehearse]

Each is simulated with half the nodes training, and at its own best split, in whole nodes of eight
devices. There are three kinds of load, each steady and with a rollout-to-training ratio that
doubles over the run. Then the steady loads run on 1,024 devices at the same shares, with a quarter
of the sessions for each node. In DIR: `pipelines.md` (tables and goals), `pipelines.json`,
pictures. Progress goes to standard error. With `--rehearse` all four are rehearsed on 8 and 32
modelled devices instead (`rehearsals.py`): it takes long, and needs a machine at rest.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from benchmarks.scheduling.cells import (
    LOADS,
    MULTIPLEXED,
    NODE,
    ONE_STEP_OFF,
    SYNCHRONOUS,
    Cell,
    Measured,
    measured,
)
from benchmarks.scheduling.pictures import draw_bubbles, draw_steps
from benchmarks.scheduling.rehearsals import rehearsed
from benchmarks.scheduling.splits import Compared, compared, scaled

_LARGE, _LARGE_STEPS, _THINNER = 1_024, 6, 4
_SHOWN_STEPS = 6
"""Steps in the timelines."""
_HEAD = (
    "| pipeline | nodes that train | step | ideal | over it | waiting | under-filled | switching "
    "| staleness |"
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """A goal under a load: a ratio, the bound that was asked for, and the measured value."""

    load: str
    devices: int
    goal: str
    asked: float
    measured: float
    at_most: bool

    @property
    def met(self) -> bool:
        """Return True if the ratio is as asked."""
        return self.measured <= self.asked if self.at_most else self.measured >= self.asked


def main(argv: Sequence[str]) -> None:
    """Print one line of JSON."""
    parser = argparse.ArgumentParser(prog="benchmarks pipelines", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path(".seamlessflow/pipelines"))
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--devices", type=int, default=64)
    parser.add_argument("--only", type=int, help="number of a load, from 0; by default all")
    parser.add_argument("--small", action="store_true", help="leaves out 1,024 devices")
    parser.add_argument("--rehearse", action="store_true", help="rehearses instead")
    asked = parser.parse_args(argv)
    asked.out.mkdir(parents=True, exist_ok=True)
    if asked.rehearse:
        print(json.dumps({"benchmark": "pipelines", **rehearsed(asked.out)}))
        return
    began_s = time.process_time()
    loads = LOADS if asked.only is None else LOADS[asked.only : asked.only + 1]
    nodes = asked.devices // NODE
    by_load: list[list[Compared]] = []
    for load in loads:
        by_load.append(list(compared(load, nodes, asked.steps, _shown)))
        _write(asked.out, by_load)
    steady = (
        [] if asked.small else [pairs for pairs in by_load if not pairs[0].same.cell.load.drifts]
    )
    for pairs in steady:
        by_load.append(list(scaled(pairs, _LARGE // NODE, _LARGE_STEPS, _THINNER, _shown)))
        _write(asked.out, by_load)
    draw_bubbles(loads[0], nodes, _SHOWN_STEPS, asked.out)
    goals = _goals(by_load)
    report = {
        "benchmark": "pipelines",
        "out": str(asked.out),
        "goals": len(goals),
        "met": sum(goal.met for goal in goals),
        "cpu_s": round(time.process_time() - began_s, 1),
    }
    print(json.dumps(report))


def verdicts(pairs: Sequence[Compared], devices: int) -> Iterator[Verdict]:
    """Yield the goals for `multiplexed`, from the pipelines under one load."""
    by_name = {pair.same.cell.pipeline.name: pair for pair in pairs}
    multiplexed, off, sync = (
        by_name[pipeline.name] for pipeline in (MULTIPLEXED, ONE_STEP_OFF, SYNCHRONOUS)
    )
    load = multiplexed.best.cell.load
    best_s = multiplexed.best.step_s
    ideal = "step / ideal step"
    yield Verdict(load.title, devices, ideal, 1.05, best_s / multiplexed.best.ideal_s, True)
    asked = 1.0 if load.drifts else 1.03
    beside = "step / step of one step off, each at its best split"
    yield Verdict(load.title, devices, beside, asked, best_s / off.best.step_s, True)
    half = "step of disaggregated synchronous / step, half of the nodes train"
    yield Verdict(load.title, devices, half, 1.8, sync.same.step_s / multiplexed.same.step_s, False)


def table(pairs: Sequence[Compared], title: str) -> str:
    """Return the pipelines under one load as a Markdown table."""
    rows = [_row(pair, best) for pair in pairs for best in (False, True) if _is_shown(pair, best)]
    return "\n".join([f"**{title}**", "", _HEAD, "|---" * _HEAD.count(" | ") + "|---|", *rows])


def judged(goals: Sequence[Verdict]) -> str:
    """Return the goals as a Markdown table."""
    head = "| load | devices | ratio | asked | measured | |\n|---|---|---|---|---|---|"
    rows = [
        f"| {verdict.load} | {verdict.devices:,} | {verdict.goal} "
        f"| {'at most' if verdict.at_most else 'at least'} {verdict.asked:.2f} "
        f"| {verdict.measured:.2f} | {'' if verdict.met else 'not met'} |"
        for verdict in goals
    ]
    return "\n".join([head, *rows])


def _shown(cell: Cell) -> Measured:
    """Return a cell's figures, and show them."""
    began_s = time.perf_counter()
    figures = measured(cell)
    print(
        f"{cell.load.title}: {cell.pipeline.name}, {cell.train} of {cell.nodes} nodes train: "
        f"step {figures.step_s:.1f} s, ideal {figures.ideal_s:.1f} s "
        f"({time.perf_counter() - began_s:.1f} s)",
        file=sys.stderr,
        flush=True,
    )
    return figures


def _plain(result: Measured) -> dict[str, object]:
    cell = result.cell
    figures = {
        field.name: getattr(result, field.name) for field in fields(result) if field.name != "cell"
    }
    return {
        "load": cell.load.title,
        "pipeline": cell.pipeline.name,
        "devices": cell.nodes * NODE,
        "nodes_that_train": cell.train,
        "steps": cell.steps,
        **{name: round(value, 4) for name, value in figures.items()},
    }


def _devices(pairs: Sequence[Compared]) -> int:
    return pairs[0].same.cell.nodes * NODE


def _goals(by_load: Sequence[Sequence[Compared]]) -> list[Verdict]:
    return [verdict for pairs in by_load for verdict in verdicts(pairs, _devices(pairs))]


def _write(out: Path, by_load: Sequence[Sequence[Compared]]) -> None:
    """Write all that was measured so far."""
    goals = _goals(by_load)
    tables = [
        table(pairs, f"{pairs[0].same.cell.load.title}, {_devices(pairs):,} devices")
        for pairs in by_load
    ]
    text = "\n\n".join([judged(goals), *tables])
    (out / "pipelines.md").write_text(f"{text}\n", encoding="utf-8")
    rows = [
        _plain(result) for pairs in by_load for pair in pairs for result in (pair.same, pair.best)
    ]
    report = {"cells": rows, "goals": [{**asdict(goal), "met": goal.met} for goal in goals]}
    (out / "pipelines.json").write_text(f"{json.dumps(report, indent=1)}\n", encoding="utf-8")
    for devices in {_devices(pairs) for pairs in by_load}:
        shown = [pairs for pairs in by_load if _devices(pairs) == devices]
        title = f"Time of a step on {devices:,} devices"
        draw_steps(shown, title, out / f"pipelines-{devices}.svg")


def _is_shown(pair: Compared, best: bool) -> bool:
    return not best or pair.best.cell.train != pair.same.cell.train


def _row(pair: Compared, best: bool) -> str:
    result = pair.best if best else pair.same
    split = f"{result.cell.train} of {result.cell.nodes}{', best' if result is pair.best else ''}"
    cells = (
        result.cell.pipeline.name,
        split,
        f"{result.step_s:.1f} s",
        f"{result.ideal_s:.1f} s",
        f"{result.step_s / result.ideal_s - 1:.0%}",
        f"{result.waiting:.0%}",
        f"{result.under_filled:.0%}",
        f"{result.switching:.1%}",
        f"{result.staleness:.2f}",
    )
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main(sys.argv[1:])
