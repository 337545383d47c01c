"""Pictures for the benchmark `pipelines`: steps beside the ideal, timelines before and after."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from benchmarks.scheduling.cells import MULTIPLEXED, SYNCHRONOUS, Cell, Load, simulated
from benchmarks.scheduling.splits import Compared
from seamlessflow.lab.timeline.chart import INK, plot
from seamlessflow.scheduler.state.timeline import timeline

_SAME, _BEST = "#bcd5f3", "#2f6fce"
_WIDTH = 0.38


@style.context("seamlessflow.reports.style")
def draw_steps(by_load: Sequence[Sequence[Compared]], title: str, path: Path) -> None:
    """Write a panel for each load: each pipeline's step and ideal step. Raises `OSError`."""
    columns = 2
    rows = -(-len(by_load) // columns)
    figure = Figure(figsize=(12.0, 1.0 + 2.9 * rows), dpi=130)
    FigureCanvasAgg(figure)
    panels = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes, pairs in zip(panels, by_load, strict=False):
        _panel(axes, pairs)
    for axes in panels[len(by_load) :]:
        axes.set_visible(False)
    figure.text(0.02, 0.975, title, fontsize=13, weight="bold", va="top")
    figure.legend(
        handles=[
            Patch(facecolor=_SAME, label="half of the nodes train"),
            Patch(facecolor=_BEST, label="each at its best split"),
            Line2D([], [], color=INK, linewidth=2, label="ideal step of the same run"),
        ],
        loc="upper right",
        ncols=3,
        fontsize=9,
    )
    figure.tight_layout(rect=(0, 0, 1, 0.94))
    figure.savefig(path)


def draw_bubbles(load: Load, nodes: int, steps: int, folder: Path) -> list[Path]:
    """Write timelines for disaggregated synchronous and for multiplexed at the same split."""
    paths = []
    for name, pipeline in (("before", SYNCHRONOUS), ("after", MULTIPLEXED)):
        run, _ = simulated(Cell(pipeline, load, nodes, nodes // 2, steps))
        paths.append(folder / f"pipelines-{name}.png")
        plot(timeline(run.control), paths[-1])
    return paths


def _panel(axes: Axes, pairs: Sequence[Compared]) -> None:
    for place, pair in enumerate(pairs):
        for shift, measured, colour in ((-0.5, pair.same, _SAME), (0.5, pair.best, _BEST)):
            at = place + shift * _WIDTH
            axes.bar(at, measured.step_s, _WIDTH * 0.94, color=colour)
            ends = (at - _WIDTH / 2, at + _WIDTH / 2)
            axes.plot(ends, (measured.ideal_s, measured.ideal_s), color=INK, linewidth=2)
            label = f"{measured.step_s:.0f}\n{measured.cell.train} of {measured.cell.nodes}"
            axes.annotate(
                label,
                (at, measured.step_s),
                (0, 2),
                textcoords="offset points",
                ha="center",
                va="bottom",
                fontsize=7.5,
            )
    names = [pair.same.cell.pipeline.name.replace(" ", "\n", 1) for pair in pairs]
    axes.set_xticks(range(len(pairs)), labels=names, fontsize=9, color=INK)
    axes.set_title(pairs[0].same.cell.load.title, loc="left", fontsize=10.5, weight="bold")
    axes.set_ylabel("seconds a step", fontsize=9)
    axes.margins(y=0.22)
    axes.grid(axis="y")
