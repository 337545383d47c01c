"""A comparison's picture: each method's curve, from its lowest to its highest seed."""

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from benchmarks.learning.curves import Curve

_COLUMNS = 3
_INK, _OTHERS = "#2f6fce", "#b9bfc7"


@style.context("seamlessflow.reports.style")
def draw(curves: Sequence[Curve], title: str, path: Path, by_tokens: bool = False) -> None:
    """Write a panel for each method, with the others' means in grey. Raises `OSError`.

    `by_tokens`: True if the axis is sampled tokens, not optimizer steps.
    """
    methods = list(dict.fromkeys(curve.method for curve in curves))
    columns = min(_COLUMNS, len(methods))
    rows = -(-len(methods) // columns)
    figure = Figure(figsize=(3.4 * columns, 0.6 + 2.3 * rows), dpi=110)
    FigureCanvasAgg(figure)
    panels = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True).ravel()
    for axes, method in zip(panels, methods, strict=False):
        for other in methods:
            _mean(axes, _of(curves, other), other == method, by_tokens)
        _band(axes, _of(curves, method), by_tokens)
        seeds = len(_of(curves, method))
        label = f"{method} ({seeds} seed{'s' if seeds > 1 else ''})"
        axes.set_title(label, loc="left", fontsize=9.5, weight="bold")
        axes.set_ylim(0, 1)
        axes.grid(axis="y")
    for axes in panels[len(methods) :]:
        axes.set_visible(False)
    figure.suptitle(title, fontsize=11, weight="bold", x=0.02, ha="left")
    figure.supxlabel("sampled tokens" if by_tokens else "optimizer step", fontsize=9)
    figure.supylabel("reward on held-out tasks", fontsize=9)
    figure.tight_layout()
    figure.savefig(path)


@style.context("seamlessflow.reports.style")
def draw_groups(curves: Sequence[Curve], title: str, path: Path) -> None:
    """Write what kind of groups each method samples, as means over its seeds. Raises `OSError`."""
    figure = Figure(figsize=(10.2, 3.6), dpi=110)
    FigureCanvasAgg(figure)
    equal, level = figure.subplots(1, 2)
    for method in dict.fromkeys(curve.method for curve in curves):
        # Nothing is sampled before the first point.
        points = zip(*(curve.points[1:] for curve in _of(curves, method)), strict=True)
        means = [
            (
                seeds[0].step,
                fmean(point.equal_share for point in seeds),
                fmean(point.drawn_level for point in seeds),
            )
            for seeds in points
        ]
        steps, shares, levels = zip(*means, strict=True)
        equal.plot(steps, shares, label=method, linewidth=1.4)
        level.plot(steps, levels, label=method, linewidth=1.4)
    equal.set_title("share of groups with equal returns", loc="left", fontsize=9.5, weight="bold")
    equal.set_ylim(0, 1)
    level.set_title("mean level of their tasks", loc="left", fontsize=9.5, weight="bold")
    for axes in (equal, level):
        axes.grid(axis="y")
        axes.set_xlabel("optimizer step", fontsize=9)
    level.legend(fontsize=8, frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
    figure.suptitle(title, fontsize=11, weight="bold", x=0.02, ha="left")
    figure.tight_layout()
    figure.savefig(path)


def _of(curves: Sequence[Curve], method: str) -> list[Curve]:
    return [curve for curve in curves if curve.method == method]


def _places(curves: Sequence[Curve], by_tokens: bool) -> list[float]:
    """Return each point's place on the axis, the mean over the seeds."""
    points = zip(*(curve.points for curve in curves), strict=True)
    return [fmean(point.tokens if by_tokens else point.step for point in seeds) for seeds in points]


def _mean(axes: Axes, curves: Sequence[Curve], chosen: bool, by_tokens: bool) -> None:
    steps = _places(curves, by_tokens)
    means = [fmean(rewards) for rewards in _rewards(curves)]
    colour, width = (_INK, 2.0) if chosen else (_OTHERS, 0.8)
    axes.plot(steps, means, color=colour, linewidth=width, zorder=3 if chosen else 1)


def _band(axes: Axes, curves: Sequence[Curve], by_tokens: bool) -> None:
    """Fill from the lowest to the highest seed; the table has the intervals.

    An interval over few seeds would leave the range that rewards can have.
    """
    steps = _places(curves, by_tokens)
    rewards = _rewards(curves)
    low, high = [min(values) for values in rewards], [max(values) for values in rewards]
    axes.fill_between(steps, low, high, color=_INK, alpha=0.2, lw=0, zorder=2)


def _rewards(curves: Sequence[Curve]) -> list[tuple[float, ...]]:
    return list(zip(*([point.reward for point in curve.points] for curve in curves), strict=True))
