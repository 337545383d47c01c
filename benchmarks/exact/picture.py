"""Pictures: prompts with other ids by turn, and each variant's reward over its steps."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib import style
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from benchmarks.exact.runs import Run
from benchmarks.exact.shares import PromptChanges, by_turn
from benchmarks.exact.training import StepRow
from benchmarks.exact.variants import VARIANTS

_COLOURS = ("#2f6fce", "#c4563c", "#8a8f98", "#3c9a5f")
_WINDOW = 5
"""Steps over which a point is the mean."""


@style.context("seamlessflow.reports.style")
def draw_prompts(prompts: Sequence[PromptChanges], title: str, path: Path) -> None:
    """Write the share of prompts with other ids by turn, with intervals. Raises `OSError`."""
    figure = Figure(figsize=(6.4, 3.2), dpi=110)
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    for tools, colour in ((False, _COLOURS[0]), (True, _COLOURS[1])):
        shares = by_turn([prompt for prompt in prompts if prompt.tools == tools])
        turns = list(shares)
        middles = [share.count / share.whole for share in shares.values()]
        bounds = [share.interval() for share in shares.values()]
        lows = [middle - low for middle, (low, _) in zip(middles, bounds, strict=True)]
        highs = [high - middle for middle, (_, high) in zip(middles, bounds, strict=True)]
        if turns:
            label = "with tools" if tools else "without tools"
            axes.errorbar(turns, middles, (lows, highs), color=colour, capsize=3, label=label)
    axes.set_title(title, loc="left", fontsize=10, weight="bold")
    axes.set_xlabel("turn")
    axes.set_ylabel("prompts with other ids")
    axes.set_ylim(0, 1)
    axes.grid(axis="y")
    if prompts:
        axes.legend(loc="upper left", fontsize=8)
    figure.tight_layout()
    figure.savefig(path)


@style.context("seamlessflow.reports.style")
def draw_rewards(runs: Mapping[Run, Sequence[StepRow]], path: Path) -> None:
    """Write the picture. Raises `OSError`."""
    figure = Figure(figsize=(6.4, 3.2), dpi=110)
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    for variant, colour in zip(VARIANTS, _COLOURS, strict=True):
        of_variant = [rows for run, rows in runs.items() if run.variant == variant]
        curves = [smoothed([row.reward for row in rows]) for rows in of_variant]
        for curve in curves:
            axes.plot(curve, color=colour, linewidth=0.7, alpha=0.4)
        if curves:
            label = f"{variant} ({len(curves)} seed{'s' if len(curves) > 1 else ''})"
            axes.plot(np.mean(curves, axis=0), color=colour, linewidth=2.0, label=label)
    axes.set_xlabel("optimizer step")
    axes.set_ylabel(f"mean reward, {_WINDOW} steps")
    axes.set_ylim(bottom=0)
    axes.grid(axis="y")
    if runs:
        axes.legend(loc="upper left", fontsize=8)
    figure.tight_layout()
    figure.savefig(path)


def smoothed(rewards: Sequence[float]) -> list[float]:
    """Return each reward's mean with the few before it."""
    return [
        float(np.mean(rewards[max(0, place + 1 - _WINDOW) : place + 1]))
        for place in range(len(rewards))
    ]
