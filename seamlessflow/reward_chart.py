"""`reward.png`: the reward of every optimizer step, its ten-step mean, evaluation, staleness.

The only file beside `scheduler/timeline_chart.py` that imports matplotlib (extra `charts`); the
two look alike.
"""

from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from seamlessflow.reward_curve import StepFacts, mean_reward

INK, FAINT = "#202124", "#5f6368"


def plot(
    steps: Sequence[StepFacts], eval_before: float | None, eval_after: float | None, path: Path
) -> None:
    """Writes the curve as PNG. Raises `OSError`."""
    figure = Figure(figsize=(10, 5), dpi=180, facecolor="white")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    _rewards(axes, steps)
    figure.savefig(path)


def _rewards(axes: Axes, steps: Sequence[StepFacts]) -> None:
    numbers = [one.step for one in steps if one.reward is not None]
    axes.plot(numbers, [one.reward for one in steps if one.reward is not None])
    means = [
        (steps[end].step, mean_reward(steps[end - 9 : end + 1])) for end in range(9, len(steps))
    ]
    axes.plot(
        [n for n, mean in means if mean is not None],
        [mean for _, mean in means if mean is not None],
    )
