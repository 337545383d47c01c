"""Chart `timeline.png`: a row for each worker, a colour for each part of its time, versions on top.

A bar has full height where one part took all the time. In rollout its parts are as high as their
shares. More than sixty workers become an image instead. In it, each worker has a row of pixels, and
each pixel the mean colour of its column's time.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from numpy.typing import NDArray

from seamlessflow.infra.printable import number_of
from seamlessflow.lab.timeline.bars import COLOURS, IDLE, LABELS, SHARES, Bar, bars, parts
from seamlessflow.scheduler.state.accounts.device_time import TimeWindow, together
from seamlessflow.scheduler.state.timeline import StepEnd, Timeline

BAR = 0.72
"""A bar's height; rows are 1 apart."""
MOST_BARS, MOST_IMAGE_BARS, COLUMNS = 20_000, 400_000, 1_600
"""Most bars in a panel and in an image, and the image's width in pixels.

With more bars, short neighbours are joined.
"""
MOST_LABELS = 14
MOST_NAMES = 60
MOST_LINES = 200
CLOSEST, NAMED = 0.03, 3
"""Least distance between two labels, as a share of the chart's width.

Labels with a policy's name need three times that.
"""
DENSE_STEPS, ZOOM_STEPS = 30, 10
"""A run with more than 30 steps gets a second panel with ten of them, from its middle."""
INK = "#202124"
FAINT = "#5f6368"
WIDTH_IN = 12.0
ROW_IN = 0.5
PANEL_IN = 0.85
HEAD_IN = 0.75
FOOT_IN = 0.65
TALLEST_IN = 18.0
_RGB = {
    name: np.array([int(colour[at : at + 2], 16) for at in (1, 3, 5)]) / 255
    for name, colour in COLOURS.items()
}


@style.context("seamlessflow.reports.style")
def plot(timeline: Timeline, path: Path) -> None:
    """Write the timeline as PNG, or as SVG if the file's name ends so. Raises `OSError`."""
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
        (_bars if rows <= MOST_NAMES else _image)(axes, timeline, window)
        _frame(axes, timeline, window, _steps(axes, timeline, window))
        if number == 0:
            _idle_shares(axes, timeline)
        else:
            _beside(axes, f"{ZOOM_STEPS} of these\nsteps, closer", (1, 0.5), "axes fraction")
    _text(figure, timeline, height)
    figure.savefig(path)


def _zoom(timeline: Timeline) -> list[TimeWindow]:
    steps = timeline.steps
    if len(steps) <= DENSE_STEPS:
        return []
    first = (len(steps) - ZOOM_STEPS) // 2
    return [(steps[first].at_ms, steps[first + ZOOM_STEPS].at_ms)]


def _seconds(timeline: Timeline, at_ms: int) -> float:
    return (at_ms - timeline.training_ms[0]) / 1000


def _bars(axes: Axes, timeline: Timeline, window: TimeWindow) -> None:
    rows = {worker: row for row, worker in enumerate(timeline.workers)}
    boxes: dict[str, list[Sequence[tuple[float, float]]]] = {name: [] for name in COLOURS}
    for worker, of_worker in bars(timeline.intervals, window, MOST_BARS).items():
        for bar in of_worker:
            start = _seconds(timeline, bar.start_ms)
            end = _seconds(timeline, bar.end_ms)
            for part, low, high in _heights(bar):
                low, high = (rows[worker] + BAR / 2 - BAR * at for at in (low, high))
                boxes[part].append([(start, low), (start, high), (end, high), (end, low)])
    for part, colour in COLOURS.items():
        # Not snapped to pixels: bars may be narrower than one. Edges close seams between bars.
        drawn = PolyCollection(boxes[part], facecolors=colour, edgecolors=colour, snap=False)
        drawn.set_linewidth(0.2)
        axes.add_collection(drawn, autolim=False)


def _image(axes: Axes, timeline: Timeline, window: TimeWindow) -> None:
    by_worker = bars(timeline.intervals, window, MOST_IMAGE_BARS)
    rows = timeline.workers
    extent = (_seconds(timeline, window[0]), _seconds(timeline, window[1]), len(rows) - 0.5, -0.5)
    image = _rows_image(rows, by_worker, window, COLUMNS)
    axes.imshow(image, extent=extent, aspect="auto", interpolation="nearest")


def _rows_image(
    workers: Sequence[str], bars: Mapping[str, Sequence[Bar]], window: TimeWindow, columns: int
) -> NDArray[np.float64]:
    """Return colours (0 to 1) in shape (workers, columns, 3); white where a worker is not there.

    `bars`: each worker's bars in the window.
    """
    image = np.ones((len(workers), columns, 3))
    for row, worker in enumerate(workers):
        colour, spent = _row(bars.get(worker, ()), window, columns)
        present = spent > 0
        image[row, present] = colour[present] / spent[present, None]
    return image


def _row(
    bars: Sequence[Bar], window: TimeWindow, columns: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return each column's colour, summed by time, and each column's time in column widths."""
    colour = np.zeros((columns, 3))
    spent = np.zeros(columns)
    scale = columns / (window[1] - window[0])
    for bar in bars:
        begin, end = ((at_ms - window[0]) * scale for at_ms in (bar.start_ms, bar.end_ms))
        first = int(begin)
        last = min(columns, int(end) + 1)
        covered = np.ones(last - first)
        covered[0] -= begin - first
        covered[-1] -= max(0.0, last - end)
        spent[first:last] += covered
        mean = sum((share * _RGB[name] for name, share in bar.shares.items()), np.zeros(3))
        colour[first:last] += covered[:, None] * mean
    return colour, spent


def _heights(bar: Bar) -> Iterator[tuple[str, float, float]]:
    """Yield a bar's parts, each with its lower and its upper end in the bar."""
    low = 0.0
    for part in COLOURS:
        if part in bar.shares:
            yield part, low, low + bar.shares[part]
            low += bar.shares[part]


def _steps(axes: Axes, timeline: Timeline, window: TimeWindow) -> str:
    """Draw the versions; return a notice if some have no line or no number."""
    inside = [end for end in timeline.steps if window[0] <= end.at_ms <= window[1]]
    several = len(timeline.policies) > 1
    labelled = _labelled(inside, window, CLOSEST * (NAMED if several else 1))
    drawn = inside if len(inside) <= MOST_LINES else labelled
    for end in drawn:
        at = _seconds(timeline, end.at_ms)
        wide = 0.7 if end in labelled else 0.35
        axes.axvline(at, color=INK, linewidth=wide, linestyle=(0, (2, 2)), zorder=4)
    for end in labelled:
        axes.annotate(
            f"{end.policy} v{end.version}" if several else f"v{end.version}",
            (_seconds(timeline, end.at_ms), 1),
            (0, 4),
            xycoords=("data", "axes fraction"),
            textcoords="offset points",
            ha="center",
            fontsize=8,
            color=FAINT,
        )
    if len(drawn) < len(inside):
        return f"; lines of {len(drawn)} of {len(inside)} versions"
    return "; a line for each version" if len(labelled) < len(inside) else ""


def _labelled(steps: Sequence[StepEnd], window: TimeWindow, closest: float) -> Sequence[StepEnd]:
    """Return at most `MOST_LABELS` steps to label, a round number apart, none over another."""
    apart = next(
        number
        for number in (factor * 10**power for power in range(9) for factor in (1, 2, 5))
        if len(steps) <= number * MOST_LABELS
    )
    chosen: list[StepEnd] = []
    for end in steps:
        far = not chosen or end.at_ms - chosen[-1].at_ms > closest * (window[1] - window[0])
        if end.version % apart == 0 and far:
            chosen.append(end)
    return chosen


def _frame(axes: Axes, timeline: Timeline, window: TimeWindow, versions: str) -> None:
    workers = timeline.workers
    start, end = (_seconds(timeline, at_ms) for at_ms in window)
    axes.set_xlim(start, max(start + 0.001, end))
    axes.set_ylim(max(1, len(workers)) - 0.5, -0.5)
    every = _every(len(workers))
    axes.set_yticks(range(0, len(workers), every), labels=workers[::every], fontsize=9, color=INK)
    axes.set_xlabel(f"seconds; {SHARES}{versions}", fontsize=8.5, color=FAINT, labelpad=2)
    axes.tick_params(axis="x", labelsize=8)


def _every(rows: int) -> int:
    """Return how many rows lie from one name to the next."""
    return -(-rows // MOST_NAMES) or 1


def _idle_shares(axes: Axes, timeline: Timeline) -> None:
    spent = timeline.device_time()
    every = _every(len(timeline.workers))
    for row, worker in enumerate(timeline.workers):
        if worker in spent and row % every == 0:
            share = f"{spent[worker].idle_share:.0%} idle"
            _beside(axes, share, (1, row), ("axes fraction", "data"))


def _beside(axes: Axes, text: str, at: tuple[float, float], units: str | tuple[str, str]) -> None:
    axes.annotate(
        text, at, (8, 0), xycoords=units, textcoords="offset points", va="center", fontsize=8.5
    )


def _text(figure: Figure, timeline: Timeline, height: float) -> None:
    figure.text(0.09, 1 - 0.3 / height, "What each worker did", fontsize=13, weight="bold")
    figure.text(0.09, 1 - 0.54 / height, _summary(timeline), fontsize=9, color=FAINT)
    shown = (interval for interval in timeline.intervals if interval.within(timeline.training_ms))
    present = {part for interval in shown for part in parts(interval)}
    figure.legend(
        handles=[
            Patch(facecolor=colour, label=LABELS[part])
            for part, colour in COLOURS.items()
            if part in present
        ],
        loc="lower left",
        bbox_to_anchor=(0.082, 0.08 / height),
        ncols=6,
        fontsize=9,
        handlelength=1.2,
        handleheight=1.0,
    )


def _by_policy(timeline: Timeline) -> str:
    """Return each policy's step count if there are several policies; empty for one."""
    counts = Counter(policy for policy, _ in {(step.policy, step.step) for step in timeline.steps})
    if len(counts) < 2:
        return ""
    return ": " + ", ".join(f"{counts[policy]} of {policy}" for policy in timeline.policies)


def _summary(timeline: Timeline) -> str:
    seconds = _seconds(timeline, timeline.training_ms[1])
    spent = together(timeline.device_time().values())
    parts = [
        f"{number_of(timeline.steps_made, 'optimizer step')} in {seconds:.0f} s"
        f"{_by_policy(timeline)}",
        number_of(timeline.switches, "change of role", "changes of role"),
        f"{number_of(timeline.handed_back, 'turn')} handed back",
    ]
    if spent.total:
        parts.append(f"idle ({IDLE}) {spent.idle_share:.1%} of device time")
    return "   ·   ".join(parts)
