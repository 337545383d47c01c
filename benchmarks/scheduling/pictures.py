"""Pictures of the benchmark `pipelines`: steps beside the ideal, and timelines before and after."""

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
def draw_steps(found: Sequence[Sequence[Compared]], title: str, path: Path) -> None:
    """Write a panel for each load: step and ideal step of each pipeline. Raises `OSError`."""
    columns = 2
    rows = -(-len(found) // columns)
    figure = Figure(figsize=(12.0, 1.0 + 2.9 * rows), dpi=130)
    FigureCanvasAgg(figure)
    panels = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes, of in zip(panels, found, strict=False):
        _panel(axes, of)
    for axes in panels[len(found) :]:
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
    """Write the timelines of disaggregated synchronous and of multiplexed at the same split."""
    paths = []
    for name, pipeline in (("before", SYNCHRONOUS), ("after", MULTIPLEXED)):
        run, _ = simulated(Cell(pipeline, load, nodes, nodes // 2, steps))
        paths.append(folder / f"pipelines-{name}.png")
        plot(timeline(run.control), paths[-1])
    return paths


def _panel(axes: Axes, found: Sequence[Compared]) -> None:
    for place, one in enumerate(found):
        for shift, of, colour in ((-0.5, one.same, _SAME), (0.5, one.best, _BEST)):
            at = place + shift * _WIDTH
            axes.bar(at, of.step_s, _WIDTH * 0.94, color=colour)
            ends = (at - _WIDTH / 2, at + _WIDTH / 2)
            axes.plot(ends, (of.ideal_s, of.ideal_s), color=INK, linewidth=2)
            label = f"{of.step_s:.0f}\n{of.cell.train} of {of.cell.nodes}"
            axes.annotate(
                label,
                (at, of.step_s),
                (0, 2),
                textcoords="offset points",
                ha="center",
                va="bottom",
                fontsize=7.5,
            )
    names = [one.same.cell.pipeline.name.replace(" ", "\n", 1) for one in found]
    axes.set_xticks(range(len(found)), labels=names, fontsize=9, color=INK)
    axes.set_title(found[0].same.cell.load.title, loc="left", fontsize=10.5, weight="bold")
    axes.set_ylabel("seconds a step", fontsize=9)
    axes.margins(y=0.22)
    axes.grid(axis="y")
