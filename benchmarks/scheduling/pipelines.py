"""Pipelines compared: colocated, disaggregated synchronous, one step off, multiplexed.

    python -m benchmarks pipelines [--out DIR] [--steps 12] [--devices 64] [--rehearse]

Each is simulated with half of the nodes training and at its own best split, in whole nodes of eight
devices, for three kinds of load: steady, and with a ratio of rollout to training that doubles over
the run. Then the steady ones on 1,024 devices at the same shares, with a quarter of the sessions
for each node. In DIR: `pipelines.md` (tables and goals), `pipelines.json`, pictures. Progress goes
to standard error. With `--rehearse` all four are rehearsed on 8 and 32 modelled devices instead
(`rehearsals.py`): it takes long, and a machine at rest.
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
"""Steps of the timelines."""
_HEAD = (
    "| pipeline | nodes that train | step | ideal | over it | waiting | under-filled | switching "
    "| staleness |"
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """A goal under a load: what was asked of a ratio, and what it is."""

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
    found: list[list[Compared]] = []
    for load in loads:
        found.append(list(compared(load, nodes, asked.steps, _shown)))
        _write(asked.out, found)
    steady = [] if asked.small else [of for of in found if not of[0].same.cell.load.drifts]
    for of in steady:
        found.append(list(scaled(of, _LARGE // NODE, _LARGE_STEPS, _THINNER, _shown)))
        _write(asked.out, found)
    draw_bubbles(loads[0], nodes, _SHOWN_STEPS, asked.out)
    goals = _goals(found)
    told = {
        "benchmark": "pipelines",
        "out": str(asked.out),
        "goals": len(goals),
        "met": sum(one.met for one in goals),
        "cpu_s": round(time.process_time() - began_s, 1),
    }
    print(json.dumps(told))


def verdicts(found: Sequence[Compared], devices: int) -> Iterator[Verdict]:
    """Yield the goals of `multiplexed`, of the pipelines under one load."""
    by_name = {one.same.cell.pipeline.name: one for one in found}
    own, off, sync = (by_name[one.name] for one in (MULTIPLEXED, ONE_STEP_OFF, SYNCHRONOUS))
    load = own.best.cell.load
    best_s = own.best.step_s
    ideal = "step / ideal step"
    yield Verdict(load.title, devices, ideal, 1.05, best_s / own.best.ideal_s, True)
    asked = 1.0 if load.drifts else 1.03
    beside = "step / step of one step off, each at its best split"
    yield Verdict(load.title, devices, beside, asked, best_s / off.best.step_s, True)
    half = "step of disaggregated synchronous / step, half of the nodes train"
    yield Verdict(load.title, devices, half, 1.8, sync.same.step_s / own.same.step_s, False)


def table(found: Sequence[Compared], title: str) -> str:
    """Return the pipelines under one load as a table in Markdown."""
    rows = [_row(one, best) for one in found for best in (False, True) if _is_shown(one, best)]
    return "\n".join([f"**{title}**", "", _HEAD, "|---" * _HEAD.count(" | ") + "|---|", *rows])


def judged(found: Sequence[Verdict]) -> str:
    """Return the goals as a table in Markdown."""
    head = "| load | devices | ratio | asked | measured | |\n|---|---|---|---|---|---|"
    rows = [
        f"| {of.load} | {of.devices:,} | {of.goal} | {'at most' if of.at_most else 'at least'} "
        f"{of.asked:.2f} | {of.measured:.2f} | {'' if of.met else 'not met'} |"
        for of in found
    ]
    return "\n".join([head, *rows])


def _shown(cell: Cell) -> Measured:
    """Return the figures of a cell, and show them."""
    began_s = time.perf_counter()
    found = measured(cell)
    print(
        f"{cell.load.title}: {cell.pipeline.name}, {cell.train} of {cell.nodes} nodes train: "
        f"step {found.step_s:.1f} s, ideal {found.ideal_s:.1f} s "
        f"({time.perf_counter() - began_s:.1f} s)",
        file=sys.stderr,
        flush=True,
    )
    return found


def _plain(of: Measured) -> dict[str, object]:
    cell = of.cell
    figures = {one.name: getattr(of, one.name) for one in fields(of) if one.name != "cell"}
    return {
        "load": cell.load.title,
        "pipeline": cell.pipeline.name,
        "devices": cell.nodes * NODE,
        "nodes_that_train": cell.train,
        "steps": cell.steps,
        **{name: round(value, 4) for name, value in figures.items()},
    }


def _devices(of: Sequence[Compared]) -> int:
    return of[0].same.cell.nodes * NODE


def _goals(found: Sequence[Sequence[Compared]]) -> list[Verdict]:
    return [one for of in found for one in verdicts(of, _devices(of))]


def _write(out: Path, found: Sequence[Sequence[Compared]]) -> None:
    """Write all that was measured so far."""
    goals = _goals(found)
    tables = [table(of, f"{of[0].same.cell.load.title}, {_devices(of):,} devices") for of in found]
    text = "\n\n".join([judged(goals), *tables])
    (out / "pipelines.md").write_text(f"{text}\n", encoding="utf-8")
    rows = [_plain(of) for one in found for two in one for of in (two.same, two.best)]
    told = {"cells": rows, "goals": [{**asdict(one), "met": one.met} for one in goals]}
    (out / "pipelines.json").write_text(f"{json.dumps(told, indent=1)}\n", encoding="utf-8")
    for devices in {_devices(of) for of in found}:
        shown = [of for of in found if _devices(of) == devices]
        title = f"Time of a step on {devices:,} devices"
        draw_steps(shown, title, out / f"pipelines-{devices}.svg")


def _is_shown(one: Compared, best: bool) -> bool:
    return not best or one.best.cell.train != one.same.cell.train


def _row(one: Compared, best: bool) -> str:
    of = one.best if best else one.same
    split = f"{of.cell.train} of {of.cell.nodes}{', best' if of is one.best else ''}"
    cells = (
        of.cell.pipeline.name,
        split,
        f"{of.step_s:.1f} s",
        f"{of.ideal_s:.1f} s",
        f"{of.step_s / of.ideal_s - 1:.0%}",
        f"{of.waiting:.0%}",
        f"{of.under_filled:.0%}",
        f"{of.switching:.1%}",
        f"{of.staleness:.2f}",
    )
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main(sys.argv[1:])
