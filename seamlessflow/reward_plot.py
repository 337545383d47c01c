"""`reward.png`: the mean reward of every optimizer step, its trend, and the evaluations.

Needs matplotlib (extra `charts`).
"""

from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from seamlessflow.rewards import StepRewards, mean_over

WINDOW = 10
INK, FAINT, LIGHT = "#202124", "#5f6368", "#e3e6ea"
STEPS, TREND, EVALUATION = "#9dbde9", "#1f5fbf", "#f28e2b"
SIZE_IN = (9.0, 4.6)


def plot(
    steps: Sequence[StepRewards],
    eval_before: float | None,
    eval_after: float | None,
    path: Path,
) -> None:
    """Writes the picture as PNG. Raises `OSError`."""
    figure = Figure(figsize=SIZE_IN, dpi=160, facecolor="white")
    FigureCanvasAgg(figure)
    axes = figure.add_axes((0.075, 0.12, 0.89, 0.68))
    _rewards(axes, steps)
    last = len(steps)
    _evaluation(axes, 0, eval_before)
    _evaluation(axes, last, eval_after)
    _frame(axes, steps)
    _words(figure, steps, eval_before, eval_after)
    figure.legend(
        loc="lower left",
        bbox_to_anchor=(0.066, 0.815),
        ncols=3,
        frameon=False,
        fontsize=9,
        labelcolor=INK,
        handletextpad=0.5,
        columnspacing=1.6,
    )
    figure.savefig(path)


def trend(steps: Sequence[StepRewards]) -> list[float]:
    """For each step the mean over all sessions of the ten steps that end there; fewer at first."""
    means = (mean_over(steps[max(0, end - WINDOW) : end]) for end in range(1, len(steps) + 1))
    return [mean for mean in means if mean is not None]


def _rewards(axes: Axes, steps: Sequence[StepRewards]) -> None:
    places = range(1, len(steps) + 1)
    axes.plot(
        places,
        [step.mean for step in steps],
        "o",
        color=STEPS,
        markersize=3.6,
        markeredgewidth=0,
        label="one step",
    )
    axes.plot(places, trend(steps), color=TREND, linewidth=2.2, label="mean of ten steps")


def _evaluation(axes: Axes, place: int, value: float | None) -> None:
    if value is None:
        return
    axes.plot(
        [place],
        [value],
        "D",
        color=EVALUATION,
        markeredgecolor="white",
        markersize=8.5,
        zorder=5,
        clip_on=False,
        label="held-back tasks" if place == 0 else None,
    )
    axes.annotate(
        f"{value:.2f}",
        (place, value),
        (0, -9 if place else 9),
        textcoords="offset points",
        va="top" if place else "bottom",
        ha="center",
        fontsize=9.5,
        weight="bold",
        color=EVALUATION,
        bbox={"boxstyle": "round,pad=0.1", "alpha": 0.8, "facecolor": "white", "edgecolor": "none"},
        zorder=5,
    )


def _frame(axes: Axes, steps: Sequence[StepRewards]) -> None:
    width = max(1, len(steps))
    axes.set_xlim(-0.025 * width, 1.025 * width)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))
    means = [step.mean for step in steps]
    low, high = min([0.0, *means]), max([1.0, *means])
    margin = 0.03 * (high - low)
    axes.set_ylim(low - margin, high + margin)
    axes.set_xlabel("optimizer step", fontsize=9, color=FAINT)
    axes.set_ylabel("mean terminal reward", fontsize=9, color=FAINT)
    axes.tick_params(labelsize=8.5, colors=FAINT, length=3)
    axes.grid(axis="y", color=LIGHT, linewidth=0.9)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(LIGHT)


def _words(
    figure: Figure,
    steps: Sequence[StepRewards],
    eval_before: float | None,
    eval_after: float | None,
) -> None:
    figure.text(0.075, 0.945, "What the policy earned", fontsize=13, weight="bold", color=INK)
    figure.text(0.075, 0.9, _summary(steps, eval_before, eval_after), fontsize=9, color=FAINT)


def _summary(
    steps: Sequence[StepRewards], eval_before: float | None, eval_after: float | None
) -> str:
    sessions = sum(len(step.rewards) for step in steps)
    parts = [f"{len(steps)} optimizer steps", f"{sessions:,} sessions"]
    first, last = mean_over(steps[:WINDOW]), mean_over(steps[-WINDOW:])
    if first is not None and last is not None:
        parts.append(f"first ten steps {first:.2f}, last ten {last:.2f}")
    if eval_before is not None and eval_after is not None:
        parts.append(f"held-back tasks {eval_before:.2f} → {eval_after:.2f}")
    return "   ·   ".join(parts)
