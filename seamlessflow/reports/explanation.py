"""Why little was learned: what a run's own metrics say about it. Pure.

The trainer tells on `control` when no step has a gradient at all; this looks back on a whole run,
also where gradients were there and the reward did not rise.
"""

from collections.abc import Mapping, Sequence
from statistics import fmean

Metrics = Mapping[str, float]

RISE = 0.05
"""A smaller rise of the mean reward, first to last ten steps, wants an explanation."""

FEWEST_STEPS = 20
"""Of a shorter run nothing is to be expected."""

_SMALL_SHARE = 0.05
_MASKED, _DROPPED = "masked/", "dropped/"


def explanation(first: float | None, last: float | None, steps: Sequence[Metrics]) -> list[str]:
    """Reasons in words, each with its share; nothing where the reward rose."""
    if first is None or last is None or len(steps) < FEWEST_STEPS or last - first >= RISE:
        return []
    head = f"the mean reward went from {first:.3f} to {last:.3f}: little or nothing was learned"
    found = [_equal_rewards(steps), *_masked(steps), *_dropped(steps), _failed(steps)]
    return [head, *(text for text in found if text)]


def _equal_rewards(steps: Sequence[Metrics]) -> str:
    share = fmean(metrics.get("filtered/zero_variance", 0.0) for metrics in steps)
    if share < _SMALL_SHARE:
        return ""
    reward = fmean(metrics.get("reward_mean", 0.0) for metrics in steps)
    return (
        f"{share:.0%} of all groups had equal rewards (mean {reward:.2f}) and taught nothing: "
        "the task may be too hard or too easy for the policy"
    )


def _masked(steps: Sequence[Metrics]) -> list[str]:
    trained = _sum(steps, "tokens_trained")
    masked = _family(steps, _MASKED)
    total = trained + sum(masked.values())
    return [
        f"{count / total:.0%} of the sampled tokens were not trained: {reason}"
        for reason, count in sorted(masked.items(), key=lambda item: -item[1])
        if total and count / total >= _SMALL_SHARE
    ]


def _dropped(steps: Sequence[Metrics]) -> list[str]:
    dropped = _family(steps, _DROPPED)
    total = _sum(steps, "groups") + sum(dropped.values())
    return [
        f"{count / total:.0%} of the groups were dropped as {reason}"
        for reason, count in sorted(dropped.items(), key=lambda item: -item[1])
        if total and count / total >= _SMALL_SHARE
    ]


def _failed(steps: Sequence[Metrics]) -> str:
    failed, counted = _sum(steps, "samples_failed"), _sum(steps, "sessions")
    share = failed / (failed + counted) if failed else 0.0
    return f"{share:.0%} of the sessions failed and did not count" if share >= _SMALL_SHARE else ""


def _family(steps: Sequence[Metrics], prefix: str) -> dict[str, float]:
    names = {name for metrics in steps for name in metrics if name.startswith(prefix)}
    return {name.removeprefix(prefix): _sum(steps, name) for name in names}


def _sum(steps: Sequence[Metrics], name: str) -> float:
    return sum(metrics.get(name, 0.0) for metrics in steps)
