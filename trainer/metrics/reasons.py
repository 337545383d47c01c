"""Why nothing is learned, from the metrics of the last steps. Pure; asked after each step."""

from collections.abc import Mapping, Sequence

Metrics = Mapping[str, float]


def learns(metrics: Metrics) -> bool:
    """Whether the step had any gradient."""
    return metrics.get("grad_norm", 0.0) > 0


def reasons(recent: Sequence[Metrics]) -> list[str]:
    """What kept `recent` steps from having a gradient, the weightiest first; empty if one had."""
    if not recent or any(learns(metrics) for metrics in recent):
        return []
    found = [
        _equal_rewards(recent),
        _masked(recent),
        _dropped(recent),
        _failed(recent),
    ]
    named = [text for text in found if text]
    return named or ["tokens were trained, but the loss took the gradient of all of them away"]


def _equal_rewards(recent: Sequence[Metrics]) -> str:
    if _mean(recent, "filtered/zero_variance") < 1:
        return ""
    reward = _mean(recent, "reward_mean")
    return (
        f"all sessions of each group returned the same (mean reward {reward:g}): the task is too "
        "hard or too easy for the policy, or its reward does not tell sessions apart"
    )


def _masked(recent: Sequence[Metrics]) -> str:
    masked = {
        name.removeprefix("masked/"): _sum(recent, name)
        for metrics in recent
        for name in metrics
        if name.startswith("masked/")
    }
    if _mean(recent, "filtered/zero_variance") == 1 or not sum(masked.values()):
        return ""
    parts = sorted(masked.items(), key=lambda item: -item[1])
    listed = ", ".join(f"{count:g} {reason}" for reason, count in parts)
    return f"sampled tokens are masked: {listed}"


def _dropped(recent: Sequence[Metrics]) -> str:
    dropped = {
        name.removeprefix("dropped/"): _sum(recent, name)
        for metrics in recent
        for name in metrics
        if name.startswith("dropped/")
    }
    listed = ", ".join(f"{count:g} {reason}" for reason, count in dropped.items())
    return f"groups were given up: {listed} (see GroupDropped on control)" if listed else ""


def _failed(recent: Sequence[Metrics]) -> str:
    count = _sum(recent, "samples_failed")
    return f"{count:g} sessions did not count (see SampleFailed on control)" if count else ""


def _sum(recent: Sequence[Metrics], name: str) -> float:
    return sum(metrics.get(name, 0.0) for metrics in recent)


def _mean(recent: Sequence[Metrics], name: str) -> float:
    return _sum(recent, name) / len(recent)
