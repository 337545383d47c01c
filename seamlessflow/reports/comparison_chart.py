"""Chart of two trainings of the same batches: metrics of each step, one beside the other.

With the other charts the only importer of matplotlib (extra `charts`).
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib import style
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from seamlessflow.reports.reward_chart import EVALUATION, FAINT, LEFT, REWARD

Curve = Mapping[int, Mapping[str, float]]
"""Metrics by step."""


@style.context("seamlessflow.reports.style")
def plot_comparison(
    title: str, names: Sequence[str], recorded: Curve, repeated: Curve, path: Path
) -> None:
    """Write a panel for each metric as PNG. Raises `OSError`."""
    figure = Figure(figsize=(10.0, 1.2 + 2.0 * len(names)), dpi=160)
    FigureCanvasAgg(figure)
    panels = figure.subplots(len(names), 1, sharex=True, squeeze=False)[:, 0]
    figure.suptitle(title, x=LEFT, ha="left", fontsize=14, weight="bold")
    for axes, name in zip(panels, names, strict=True):
        for curve, label, colour in (
            (recorded, "recorded", FAINT),
            (repeated, "executed again", REWARD if recorded else EVALUATION),
        ):
            points = [
                (step, values[name]) for step, values in sorted(curve.items()) if name in values
            ]
            axes.plot(*zip(*points, strict=True), color=colour, label=label) if points else None
        axes.set_title(name, loc="left", fontsize=10.5, weight="bold")
        axes.grid(axis="y")
    panels[0].legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=2, fontsize=10)
    panels[-1].set_xlabel("optimizer step", fontsize=10.5)
    panels[-1].xaxis.set_major_locator(MaxNLocator(12, integer=True))
    figure.tight_layout(rect=(0, 0, 1, 0.97))
    figure.savefig(path)
