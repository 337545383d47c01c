"""A run's charts: its rewards by step, session lengths, and two trainings side by side.

Only this module and the timeline's chart import matplotlib (extra `charts`).
"""

from collections.abc import Mapping, Sequence
from itertools import cycle
from pathlib import Path

from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from seamlessflow.reports.lengths import begun_and_trained
from seamlessflow.reports.reward_curve import (
    SessionFacts,
    StepFacts,
    edges,
    mean_reward,
    sampled_reward,
)
from seamlessflow.schemas.records import EvaluationCompleted

REWARD = "#3b7dd8"
EVALUATION = "#f28e2b"
STALENESS = "#5f6368"
SETS = EVALUATION, "#59a14f", "#b07aa1", "#e15759", "#9c755f", "#76b7b2"
"""Colours for evaluation sets, ordered by name; with further sets the colours repeat."""
FAINT = "#5f6368"
EDGE = "#c4c7cc"
WINDOW = 10
"""Steps whose mean is one point on the bold line; the point is drawn in their middle."""

FEW_STEPS = 300
DOT = 4.4
SMALL_DOT = 2.4
WIDTH_IN = 10.0
HEIGHT_IN = 5.5
LEFT = 0.062
WIDE = 0.913

Curve = Mapping[int, Mapping[str, float]]
"""Metrics by step."""


@style.context("seamlessflow.reports.style")
def plot_rewards(
    steps: Sequence[StepFacts],
    held_back: tuple[float | None, float | None],
    evaluations: Mapping[str, Sequence[EvaluationCompleted]],
    path: Path,
) -> None:
    """Write the chart with rewards and staleness as PNG, also for a run that ended early.

    `held_back`: mean reward on held-back tasks, with the first and with the last weights.
    `evaluations`: each set's rounds, oldest first. Raises `OSError`.
    """
    # A figure without pyplot: no global state, no display.
    figure = Figure(figsize=(WIDTH_IN, HEIGHT_IN), dpi=180)
    FigureCanvasAgg(figure)
    figure.text(LEFT, 0.93, "Reward during training", fontsize=15, weight="bold")
    figure.text(LEFT, 0.88, _facts(steps), fontsize=10.5, color=FAINT)
    above = figure.add_axes((LEFT, 0.36, WIDE, 0.42))
    below = figure.add_axes((LEFT, 0.115, WIDE, 0.14), sharex=above)
    _rewards(above, steps)
    _held_back(above, _end(steps), *held_back)
    _evaluations(above, evaluations)
    _staleness(below, steps)
    _frame(above, "mean reward")
    _frame(below, "staleness of trained tokens, in steps")
    rounds = [
        completed.reward_mean for evaluation in evaluations.values() for completed in evaluation
    ]
    _limits(above, below, steps, [*held_back, *rounds])
    figure.savefig(path)


@style.context("seamlessflow.reports.style")
def plot_lengths(
    sessions: Mapping[str, SessionFacts], steps: Sequence[StepFacts], path: Path
) -> None:
    """Write the chart with lengths as PNG, or nothing if the log does not say what was trained.

    A point on a line is the share of sessions that are at most so long. Raises `OSError`.
    """
    begun, trained = begun_and_trained(sessions, steps)
    if not trained:
        return
    figure = _titled("Lengths of sessions", 3.6)
    left, right = figure.subplots(1, 2, sharey=True)
    for label, colour, facts in (("begun", FAINT, begun), ("trained", REWARD, trained)):
        _shares(left, [session.tokens_sampled for session in facts], label, colour)
        _shares(right, [session.turns for session in facts], label, colour)
    left.set_xlabel("sampled tokens", fontsize=10.5)
    right.set_xlabel("turns", fontsize=10.5)
    left.set_title("share of sessions that are at most so long", loc="left", fontsize=10.5)
    figure.legend(
        *right.get_legend_handles_labels(),
        loc="upper right",
        bbox_to_anchor=(0.99, 0.995),
        ncols=2,
        fontsize=10,
    )
    figure.tight_layout(rect=(0, 0, 1, 0.97))
    figure.savefig(path)


@style.context("seamlessflow.reports.style")
def plot_comparison(
    title: str, names: Sequence[str], recorded: Curve, repeated: Curve, path: Path
) -> None:
    """Write a panel for each metric as PNG. Raises `OSError`."""
    figure = _titled(title, 1.2 + 2.0 * len(names))
    panels = figure.subplots(len(names), 1, sharex=True, squeeze=False)[:, 0]
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


def _rewards(axes: Axes, steps: Sequence[StepFacts]) -> None:
    points = [(facts.step + 1, facts.reward) for facts in steps if facts.reward is not None]
    axes.plot(
        [step for step, _ in points],
        [reward for _, reward in points],
        "o",
        color=REWARD,
        alpha=0.35,
        markersize=DOT if len(steps) <= FEW_STEPS else SMALL_DOT,
        markeredgewidth=0,
        label="one step",
    )
    windows = [steps[end - WINDOW : end] for end in range(WINDOW, len(steps) + 1)]
    means = [
        (_middle(window), mean) for window in windows if (mean := mean_reward(window)) is not None
    ]
    if means:
        first, last = map(mean_reward, edges(steps))
        axes.plot(
            [step for step, _ in means],
            [mean for _, mean in means],
            color=REWARD,
            linewidth=2.6,
            solid_capstyle="round",
            label=f"mean of {WINDOW} steps{_change('first', first, 'last', last)}",
        )
    _with_dropped(axes, steps, windows)


def _with_dropped(
    axes: Axes, steps: Sequence[StepFacts], windows: Sequence[Sequence[StepFacts]]
) -> None:
    """Draw the mean rewards also with the groups that filters dropped, if there are any."""
    if any(step.dropped_rewards for step in steps):
        means = [
            (_middle(window), mean)
            for window in windows
            if (mean := sampled_reward(window)) is not None
        ]
        places = [at for at, _ in means]
        values = [mean for _, mean in means]
        label = "with the groups that filters dropped"
        axes.plot(places, values, "--", color=REWARD, linewidth=1.4, label=label)


def _evaluations(axes: Axes, evaluations: Mapping[str, Sequence[EvaluationCompleted]]) -> None:
    """Draw a curve for each set, with each round's standard error; name it beside the title."""
    curves: list[Line2D] = []
    for rounds, color in zip(evaluations.values(), cycle(SETS), strict=False):
        numbers = [completed.step for completed in rounds]
        means = [completed.reward_mean or 0.0 for completed in rounds]
        errors = [completed.reward_error or 0.0 for completed in rounds]
        axes.errorbar(numbers, means, errors, fmt="none", ecolor=color, elinewidth=1.2, zorder=4)
        curves += axes.plot(
            numbers,
            means,
            color=color,
            linewidth=1.5,
            marker="D",
            markersize=6,
            markeredgecolor="white",
            markeredgewidth=1.0,
            clip_on=False,
            zorder=5,
        )
    labels = [
        f"{name}{_change('first', rounds[0].reward_mean, 'last', rounds[-1].reward_mean)}"
        for name, rounds in evaluations.items()
    ]
    anchor = LEFT + WIDE + 0.006, 0.99
    if isinstance(figure := axes.figure, Figure) and curves:
        figure.legend(
            curves, labels, loc="upper right", bbox_to_anchor=anchor, ncols=2, fontsize=10
        )


def _held_back(axes: Axes, end: int, before: float | None, after: float | None) -> None:
    points = [(step, value) for step, value in ((0, before), (end, after)) if value is not None]
    if points:
        axes.plot(
            [step for step, _ in points],
            [value for _, value in points],
            "D",
            color=EVALUATION,
            markersize=9,
            markeredgecolor="white",
            markeredgewidth=1.4,
            clip_on=False,
            zorder=5,
            label=f"held-back tasks{_change('before', before, 'after', after)}",
        )


def _staleness(axes: Axes, steps: Sequence[StepFacts]) -> None:
    measured = [
        step for step in steps if {"staleness_max", "staleness_mean"} <= step.metrics.keys()
    ]
    numbers = [facts.step + 1 for facts in measured]
    oldest = [facts.metrics["staleness_max"] for facts in measured]
    means = [facts.metrics["staleness_mean"] for facts in measured]
    # A step fills the width behind the previous step, so the first needs an edge before it.
    edges = [*[number - 1 for number in numbers[:1]], *numbers]
    axes.fill_between(
        edges,
        [*oldest[:1], *oldest],
        step="pre",
        color=STALENESS,
        alpha=0.2,
        linewidth=0,
        label="oldest",
    )
    axes.plot(numbers, means, color=STALENESS, linewidth=1.5, label="mean")
    axes.set_ylim(0, max([1.0, *oldest]) * 1.08)


def _frame(axes: Axes, name: str) -> None:
    axes.annotate(
        name,
        (0, 1),
        (0, 9),
        xycoords="axes fraction",
        textcoords="offset points",
        fontsize=10.5,
        weight="bold",
    )
    axes.legend(
        loc="lower right",
        bbox_to_anchor=(1.008, 0.985),
        ncols=3,
        fontsize=10,
        handlelength=1.4,
        columnspacing=1.6,
    )
    axes.grid(axis="y")
    axes.tick_params(labelsize=10, length=0)
    axes.spines["bottom"].set_color(EDGE)


def _limits(
    above: Axes, below: Axes, steps: Sequence[StepFacts], evaluations: Sequence[float | None]
) -> None:
    values = [
        value for value in (*(step.reward for step in steps), *evaluations) if value is not None
    ]
    low = min([0.0, *values])
    high = max([1.0, *values])
    pad = 0.04 * (high - low)
    above.set_ylim(low - pad, high + pad)
    above.set_xlim(-0.012 * _end(steps), 1.012 * _end(steps))
    above.tick_params(axis="x", labelbottom=False)
    below.set_xlabel("optimizer step", fontsize=10.5)
    below.xaxis.set_major_locator(MaxNLocator(12, integer=True, steps=[1, 2, 5, 10]))
    below.yaxis.set_major_locator(MaxNLocator(3, integer=True))


def _facts(steps: Sequence[StepFacts]) -> str:
    sessions = sum(len(step.rewards) for step in steps)
    tokens = sum(step.metrics.get("tokens_trained", 0) for step in steps)
    parts = f"{len(steps):,} optimizer steps", f"{sessions:,} sessions", f"{tokens:,.0f} tokens"
    return "   ·   ".join(parts) + " trained"


def _change(first: str, before: float | None, other: str, after: float | None) -> str:
    named = [(first, before), (other, after)]
    shown = [f"{name} {value:.2f}" for name, value in named if value is not None]
    return f" ({', '.join(shown)})" if shown else ""


def _middle(window: Sequence[StepFacts]) -> float:
    return (window[0].step + window[-1].step) / 2 + 1


def _end(steps: Sequence[StepFacts]) -> int:
    """Return the last step's number, counted from 1 as in all that a run prints."""
    return steps[-1].step + 1 if steps else 1


def _titled(title: str, height_in: float) -> Figure:
    figure = Figure(figsize=(WIDTH_IN, height_in), dpi=160)
    FigureCanvasAgg(figure)
    figure.suptitle(title, x=LEFT, ha="left", fontsize=14, weight="bold")
    return figure


def _shares(axes: Axes, values: Sequence[int], label: str, colour: str) -> None:
    ordered = sorted(values)
    shares = [(number + 1) / len(ordered) for number in range(len(ordered))]
    axes.step(ordered, shares, where="post", color=colour, label=label)
    axes.set_ylim(0, 1.02)
    axes.grid(axis="y")
