"""Chart `lengths.png`: lengths of the sessions that were begun and of those that were trained.

A point of a line is the share of sessions that are at most so long. One of the few importers of
matplotlib (extra `charts`).
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from seamlessflow.reports.lengths import begun_and_trained
from seamlessflow.reports.reward_chart import FAINT, LEFT, REWARD
from seamlessflow.reports.reward_curve import SessionFacts, StepFacts


@style.context("seamlessflow.reports.style")
def plot_lengths(
    sessions: Mapping[str, SessionFacts], steps: Sequence[StepFacts], path: Path
) -> None:
    """Write the chart as PNG, or nothing if the log does not tell. Raises `OSError`."""
    begun, trained = begun_and_trained(sessions, steps)
    if not trained:
        return
    figure = Figure(figsize=(10.0, 3.6), dpi=160)
    FigureCanvasAgg(figure)
    figure.suptitle("Lengths of sessions", x=LEFT, ha="left", fontsize=14, weight="bold")
    left, right = figure.subplots(1, 2, sharey=True)
    for label, colour, facts in (("begun", FAINT, begun), ("trained", REWARD, trained)):
        _draw(left, [session.tokens_sampled for session in facts], label, colour)
        _draw(right, [session.turns for session in facts], label, colour)
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


def _draw(axes: Axes, values: Sequence[int], label: str, colour: str) -> None:
    ordered = sorted(values)
    shares = [(number + 1) / len(ordered) for number in range(len(ordered))]
    axes.step(ordered, shares, where="post", color=colour, label=label)
    axes.set_ylim(0, 1.02)
    axes.grid(axis="y")
