"""Pictures of rewards: by the age of what is trained (`lag`), and by step (`halves`,
`whole_runs`).
"""

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from statistics import fmean

from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from benchmarks.scheduling.ages import AgedResult
from seamlessflow.reports.charts import WINDOW
from seamlessflow.reports.reward_curve import StepFacts, mean_reward

_COLOURS = ("#2f6fce", "#5aa469", "#f28e2b", "#8e6bbf", "#c0392b")
_LAST = 0.25
"""Share of a run whose rewards count as its end."""


@style.context("seamlessflow.reports.style")
def draw(found: Sequence[AgedResult], path: Path) -> None:
    """Write the curves of each loss by age, and the last rewards over the measured age."""
    losses = sorted({of.run.loss for of in found})
    figure = Figure(figsize=(4.6 * (len(losses) + 1), 4.2), dpi=130)
    FigureCanvasAgg(figure)
    *curves, ends = figure.subplots(1, len(losses) + 1, squeeze=False)[0]
    for axes, loss in zip(curves, losses, strict=True):
        _curves(axes, [of for of in found if of.run.loss == loss])
        axes.set_title(loss, loc="left", fontsize=10.5, weight="bold")
    for loss, colour in zip(losses, _COLOURS, strict=False):
        _ends(ends, [of for of in found if of.run.loss == loss], colour)
    ends.set_title("at the end of the run", loc="left", fontsize=10.5, weight="bold")
    ends.set_xlabel("measured age of the trained tokens, optimizer steps", fontsize=9)
    for axes in (*curves, ends):
        axes.set_ylabel("reward", fontsize=9)
        axes.grid(axis="y")
        axes.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path)


def reading(found: Sequence[AgedResult]) -> str:
    """Return two sentences: the last rewards by age and loss, and the first age that costs."""
    losses = sorted({of.run.loss for of in found})
    parts, costs = [], []
    for loss in losses:
        of_loss = [of for of in found if of.run.loss == loss]
        ages = sorted({of.run.age for of in of_loss})
        ends = {age: [_end(of) for of in of_loss if of.run.age == age] for age in ages}
        told = ", ".join(
            f"{fmean(ends[age]):.2f} at {_age(of_loss, age):.1f} steps" for age in ages
        )
        parts.append(f"{told} with {loss}")
        low = min(ends[ages[0]])
        worse = [age for age in ages[1:] if max(ends[age]) < low]
        costs.append(
            f"with {loss} every seed at {_age(of_loss, worse[0]):.1f} steps ends below every one "
            f"at {_age(of_loss, ages[0]):.1f}"
            if worse
            else f"with {loss} the seeds of no age lie all below those of the youngest"
        )
    seeds = len({of.run.seed for of in found})
    first = f"The last rewards, mean of {seeds} seeds by measured age, were {'; '.join(parts)}."
    return f"{first} {'; '.join(costs).capitalize()}."


@style.context("seamlessflow.reports.style")
def draw_rewards(
    found: Mapping[str, Sequence[StepFacts]], path: Path, *, title: str, steps: str, reward: str
) -> None:
    """Write the reward of each curve by step, with the mean of ten steps. Raises `OSError`.

    `steps` and `reward` are the labels of the axes.
    """
    figure = Figure(figsize=(9.0, 4.2), dpi=130)
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    for (name, facts), colour in zip(found.items(), _COLOURS, strict=False):
        known = [(one.step, one.reward) for one in facts if one.reward is not None]
        axes.plot(*zip(*known, strict=True), "o", color=colour, alpha=0.3, markersize=4)
        windows = [facts[end - WINDOW : end] for end in range(WINDOW, len(facts) + 1)]
        means = [(fmean(one.step for one in of), mean_reward(of)) for of in windows]
        smooth = [(step, mean) for step, mean in means if mean is not None]
        axes.plot(*zip(*smooth, strict=True), color=colour, label=name, linewidth=2.4)
    axes.set_title(title, loc="left", fontsize=11, weight="bold")
    axes.set_xlabel(steps, fontsize=9)
    axes.set_ylabel(reward, fontsize=9)
    axes.set_ylim(-0.03, 1.03)
    axes.grid(axis="y")
    axes.legend(fontsize=9, loc="lower right")
    figure.tight_layout()
    figure.savefig(path)


def _curves(axes: Axes, found: Sequence[AgedResult]) -> None:
    ages = sorted({of.run.age for of in found})
    for age, colour in zip(ages, _COLOURS, strict=False):
        seeds = [of.rewards for of in found if of.run.age == age]
        steps = [[one for one in of if one is not None] for of in zip_longest(*seeds)]
        places = range(len(steps))
        axes.plot(
            places,
            [fmean(of) for of in steps],
            color=colour,
            label=f"age {_age(found, age):.1f}",
        )
        axes.fill_between(
            places, list(map(min, steps)), list(map(max, steps)), color=colour, alpha=0.15, lw=0
        )
    axes.set_xlabel("optimizer step", fontsize=9)


def _ends(axes: Axes, found: Sequence[AgedResult], colour: str) -> None:
    ages = sorted({of.run.age for of in found})
    ends = [[_end(of) for of in found if of.run.age == age] for age in ages]
    at = [_age(found, age) for age in ages]
    axes.plot(at, list(map(fmean, ends)), color=colour, marker="o", label=found[0].run.loss)
    axes.fill_between(at, list(map(min, ends)), list(map(max, ends)), color=colour, alpha=0.15)


def _age(found: Sequence[AgedResult], age: int) -> float:
    return fmean(of.measured_age for of in found if of.run.age == age)


def _end(of: AgedResult) -> float:
    return fmean(of.rewards[-max(1, round(_LAST * len(of.rewards))) :])
