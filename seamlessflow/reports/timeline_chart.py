"""Chart `timeline.png`: a row for each worker, a colour for each state, and the versions on top."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from scheduler.state.timeline import PAUSED, ROLLOUT, SWITCHING, TRAIN, WAITING, StepEnd, Timeline

COLOURS = {
    ROLLOUT: "#3b7dd8",
    TRAIN: "#f28e2b",
    SWITCHING: "#9aa0a6",
    PAUSED: "#f6cf65",
    WAITING: "#e3e6ea",
}
LABELS = {
    ROLLOUT: "rollout",
    TRAIN: "training",
    SWITCHING: "switching role",
    PAUSED: "loading weights",
    WAITING: "idle",
}
MOST_LABELS = 14
CLOSEST = 0.03
"""Least distance of two labels, as a share of the chart's width."""
DENSE_STEPS, ZOOM_STEPS = 30, 10
"""A run of more than 30 steps gets a second panel with ten of them, from its middle."""
INK, FAINT = "#202124", "#5f6368"
WIDTH_IN, ROW_IN, PANEL_IN, HEAD_IN, FOOT_IN, TALLEST_IN = 12.0, 0.5, 0.85, 0.75, 0.45, 18.0
Window = tuple[int, int]
"""Start and end in milliseconds since 1970."""


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
    for row, worker in enumerate(timeline.workers):
        for state, colour in COLOURS.items():
            spans = [
                (_seconds(timeline, of.start_ms), (of.end_ms - of.start_ms) / 1000)
                for of in timeline.intervals
                if of.worker == worker and of.state == state
                if of.start_ms < window[1] and of.end_ms > window[0]
            ]
            # Not snapped to pixels: intervals may be shorter than one.
            axes.broken_barh(spans, (row - 0.36, 0.72), facecolors=colour, linewidth=0, snap=False)


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
    for row, worker in enumerate(timeline.workers):
        if worker in timeline.idle:
            axes.annotate(
                f"{timeline.idle[worker]:.0%} idle",
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
    present = {interval.state for interval in timeline.intervals}
    figure.legend(
        handles=[
            Patch(facecolor=colour, label=LABELS[state])
            for state, colour in COLOURS.items()
            if state in present
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
    idle = list(timeline.idle.values())
    parts = [
        f"{len(timeline.steps)} optimizer steps in {seconds:.0f} s",
        f"{timeline.switches} changes of role",
        f"{timeline.handed_back} turns handed over",
    ]
    if idle:
        parts.append(f"idle {sum(idle) / len(idle):.1%} of worker time")
    return "   ·   ".join(parts)
