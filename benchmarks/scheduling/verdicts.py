"""Verdicts of the benchmark `pipelines`: its goals, and its tables. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from benchmarks.scheduling.cells import MULTIPLEXED, ONE_STEP_OFF, SYNCHRONOUS
from benchmarks.scheduling.splits import Compared

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
    rows = [_row(one, best) for one in found for best in (False, True) if _shown(one, best)]
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


def _shown(one: Compared, best: bool) -> bool:
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
