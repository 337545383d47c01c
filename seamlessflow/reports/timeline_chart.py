"""Chart `timeline.png`: a row for each worker, a colour for each category of its time, and the
versions on top.

A bar is full height where all of the time was one category; in rollout its parts are as high as
their shares.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from scheduler.state.accounts.device_time import (
    DECODING,
    LOADING,
    RECOMPUTING,
    SWITCHING,
    TRAINING,
    UNDER_FILLED,
    WAITING,
    Interval,
    Window,
    together,
)
from scheduler.state.timeline import StepEnd, Timeline

COLOURS = {
    DECODING: "#2f6fce",
    TRAINING: "#f28e2b",
    RECOMPUTING: "#8e6bbf",
    SWITCHING: "#9aa0a6",
    LOADING: "#f6cf65",
    UNDER_FILLED: "#bcd5f3",
    WAITING: "#e8eaed",
}
"""From the bottom of a bar to its top."""
LABELS = {
    DECODING: "decoding",
    TRAINING: "training",
    RECOMPUTING: "recomputing",
    SWITCHING: "switching role",
    LOADING: "loading or writing weights",
    UNDER_FILLED: "under-filled",
    WAITING: "waiting",
}
BAR = 0.72
"""Height of a bar; rows are 1 apart."""
MOST_LABELS = 14
CLOSEST = 0.03
"""Least distance of two labels, as a share of the chart's width."""
DENSE_STEPS, ZOOM_STEPS = 30, 10
"""A run of more than 30 steps gets a second panel with ten of them, from its middle."""
INK, FAINT = "#202124", "#5f6368"
WIDTH_IN, ROW_IN, PANEL_IN, HEAD_IN, FOOT_IN, TALLEST_IN = 12.0, 0.5, 0.85, 0.75, 0.45, 18.0


@style.context("seamlessflow.reports.style")
def plot(timeline: Timeline, path: Path) -> None:
    """Write the timeline as PNG. Raises `OSError`."""
    windows = [timeline.training_ms, *_zoom(timeline)]
    rows = max(1, len(timeline.workers))
    height = min(TALLEST_IN, HEAD_IN + FOOT_IN + len(windows) * (PANEL_IN + ROW_IN * rows))
    figure = Figure(figsize=(WIDTH_IN, height), dpi=160)
    FigureCanvasAgg(figure)
    panel = (height - HEAD_IN - FOOT_IN) / len(windows)
    for number, window in enumerate(windows):
        bottom = height - HEAD_IN - (number + 1) * panel + 0.5
        box = (0.09, bottom / height, 0.83, (panel - PANEL_IN) / height)
        axes = figure.add_axes(box)
        _bars(axes, timeline, window)
        _steps(axes, timeline, window)
        _frame(axes, timeline, window)
        if number == 0:
            _idle_shares(axes, timeline)
    _text(figure, timeline, height)
    figure.savefig(path)


def _zoom(timeline: Timeline) -> list[Window]:
    steps = timeline.steps
    if len(steps) <= DENSE_STEPS:
        return []
    first = (len(steps) - ZOOM_STEPS) // 2
    return [(steps[first].at_ms, steps[first + ZOOM_STEPS].at_ms)]


def _seconds(timeline: Timeline, at_ms: int) -> float:
    return (at_ms - timeline.training_ms[0]) / 1000


def _bars(axes: Axes, timeline: Timeline, window: Window) -> None:
    rows = {worker: row for row, worker in enumerate(timeline.workers)}
    boxes: dict[str, list[Sequence[tuple[float, float]]]] = {name: [] for name in COLOURS}
    for of in timeline.intervals:
        if of.within(window):
            start, end = _seconds(timeline, of.start_ms), _seconds(timeline, of.end_ms)
            for category, low, high in _heights(of):
                low, high = (rows[of.worker] + BAR / 2 - BAR * at for at in (low, high))
                boxes[category].append([(start, low), (start, high), (end, high), (end, low)])
    for category, colour in COLOURS.items():
        # Not snapped to pixels: intervals may be shorter than one. Edges close seams between bars.
        bars = PolyCollection(boxes[category], facecolors=colour, edgecolors=colour, snap=False)
        bars.set_linewidth(0.2)
        axes.add_collection(bars, autolim=False)


def _heights(interval: Interval) -> Iterator[tuple[str, float, float]]:
    """Yield the categories of an interval, each with the part of the bar that it takes."""
    shares, low = interval.by_category(), 0.0
    for category in COLOURS:
        if category in shares:
            yield category, low, low + shares[category]
            low += shares[category]


def _steps(axes: Axes, timeline: Timeline, window: Window) -> None:
    inside = [end for end in timeline.steps if window[0] <= end.at_ms <= window[1]]
    for end in _labelled(inside, window):
        at = _seconds(timeline, end.at_ms)
        axes.axvline(at, color=INK, linewidth=0.7, linestyle=(0, (2, 2)), zorder=4)
        axes.annotate(
            f"v{end.version}",
            (at, 1),
            (0, 4),
            xycoords=("data", "axes fraction"),
            textcoords="offset points",
            ha="center",
            fontsize=8,
            color=FAINT,
        )


def _labelled(steps: Sequence[StepEnd], window: Window) -> Sequence[StepEnd]:
    """Return at most `MOST_LABELS` steps to label, a round number apart, none over another."""
    apart = next(
        number
        for number in (factor * 10**power for power in range(9) for factor in (1, 2, 5))
        if len(steps) <= number * MOST_LABELS
    )
    chosen: list[StepEnd] = []
    for end in steps:
        far = not chosen or end.at_ms - chosen[-1].at_ms > CLOSEST * (window[1] - window[0])
        if end.version % apart == 0 and far:
            chosen.append(end)
    return chosen


def _frame(axes: Axes, timeline: Timeline, window: Window) -> None:
    workers = timeline.workers
    start, end = (_seconds(timeline, at_ms) for at_ms in window)
    axes.set_xlim(start, max(start + 0.001, end))
    axes.set_ylim(max(1, len(workers)) - 0.5, -0.5)
    axes.set_yticks(range(len(workers)), labels=workers, fontsize=9, color=INK)
    axes.set_xlabel("seconds", fontsize=8.5, color=FAINT, labelpad=2)
    axes.tick_params(axis="x", labelsize=8)


def _idle_shares(axes: Axes, timeline: Timeline) -> None:
    spent = timeline.device_time()
    for row, worker in enumerate(timeline.workers):
        if worker in spent:
            axes.annotate(
                f"{spent[worker].idle_share:.0%} idle",
                (1, row),
                (8, 0),
                xycoords=("axes fraction", "data"),
                textcoords="offset points",
                va="center",
                fontsize=8.5,
            )


def _text(figure: Figure, timeline: Timeline, height: float) -> None:
    figure.text(0.09, 1 - 0.3 / height, "What each worker did", fontsize=13, weight="bold")
    figure.text(0.09, 1 - 0.54 / height, _summary(timeline), fontsize=9, color=FAINT)
    present = {category for of in timeline.intervals for category in of.by_category()}
    figure.legend(
        handles=[
            Patch(facecolor=colour, label=LABELS[category])
            for category, colour in COLOURS.items()
            if category in present
        ],
        loc="lower left",
        bbox_to_anchor=(0.082, 0.08 / height),
        ncols=len(COLOURS),
        fontsize=9,
        handlelength=1.2,
        handleheight=1.0,
    )


def _summary(timeline: Timeline) -> str:
    seconds = _seconds(timeline, timeline.training_ms[1])
    spent = together(timeline.device_time().values())
    parts = [
        f"{len(timeline.steps)} optimizer steps in {seconds:.0f} s",
        f"{timeline.switches} changes of role",
        f"{timeline.handed_back} turns handed over",
    ]
    if spent.total:
        parts.append(f"idle {spent.idle_share:.1%} of device time")
    return "   ·   ".join(parts)
