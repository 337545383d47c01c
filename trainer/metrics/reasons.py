"""Reasons for a lack of learning, read from the metrics of optimizer steps. Pure.

The trainer asks after each step if the last ones had no gradient; the report of a run looks back
on all its steps. Both make the same four judgements; the report only names large shares.
"""

from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean

Metrics = Mapping[str, float]

RISE = 0.05
"""A smaller rise of the mean reward, from the first to the last ten steps, needs an explanation."""

FEWEST_STEPS = 20
"""A shorter run is not expected to learn."""

MODELLED = (
    "a rehearsal: the devices that train are modelled (trainer.backend clock), so nothing was "
    "learned and the weights are stand-ins"
)

_LARGE_SHARE = 0.05
_OF_ENDED = ("begun_tokens/", "ended_at/", "matched/")
"""Metrics that a step has only if sessions ended before it."""


def learns(metrics: Metrics) -> bool:
    """Return True if the step had any gradient, or tokens for one that no device computed."""
    if "modelled_s" in metrics:
        return metrics.get("tokens_trained", 0.0) > 0
    return metrics.get("grad_norm", 0.0) > 0


def reasons_for_no_gradient(recent: Sequence[Metrics]) -> list[str]:
    """Return what kept these steps from having a gradient; empty if one of them had one."""
    if not recent or any(learns(metrics) for metrics in recent):
        return []
    reasons = list(_reasons(recent, equal_share=1.0, least_share=0.0))
    return reasons or ["tokens were trained, but the loss took the gradient of all of them away"]


def reasons_for_little_learning(
    first: float | None, last: float | None, steps: Sequence[Metrics]
) -> list[str]:
    """Return why the mean reward did not rise from `first` to `last`; empty if it did.

    Also empty if a reward is unknown, or if the run was too short for a rise. Devices that were
    modelled are the reason whatever the rewards are.
    """
    if any("modelled_s" in metrics for metrics in steps):
        return [MODELLED]
    if first is None or last is None or len(steps) < FEWEST_STEPS or last - first >= RISE:
        return []
    head = f"the mean reward went from {first:.3f} to {last:.3f}: little or nothing was learned"
    return [head, *_reasons(steps, equal_share=_LARGE_SHARE, least_share=_LARGE_SHARE)]


def shares_of_ended(steps: Sequence[Metrics], family: str, counted: str) -> dict[str, float]:
    """Return the shares of a family over all sessions, or turns, that ended before these steps.

    Each step counts as many as ended before it, by the metric `counted`; one of an earlier release,
    which lacks that, counts as one. Empty if none ended.
    """
    weights = [(step, step.get(counted, _uncounted(step))) for step in steps if _some_ended(step)]
    names = sorted({name for step, _ in weights for name in step if name.startswith(family)})
    whole = sum(weight for _, weight in weights)
    return {
        name.removeprefix(family): sum(step.get(name, 0.0) * weight for step, weight in weights)
        / whole
        for name in names
    }


def _uncounted(metrics: Metrics) -> float:
    """Return what a step counts without a number of turns: none ended, or it is an earlier one."""
    return 0.0 if "sessions_ended" in metrics else 1.0


def _some_ended(metrics: Metrics) -> bool:
    return any(name.startswith(_OF_ENDED) for name in metrics)


def masked_tokens(steps: Sequence[Metrics]) -> dict[str, int]:
    """Return how many sampled tokens of these steps were not trained, by reason, most first."""
    counts = {name: round(count) for name, count in _family(steps, "masked/").items()}
    return {name: count for name, count in sorted(counts.items(), key=lambda item: -item[1])}


def listed(masked: Mapping[str, int]) -> str:
    """Return counts of masked tokens for people, such as `24 inexact_json_schema, 3 stale`."""
    return ", ".join(f"{count:,} {reason}" for reason, count in masked.items())


def _reasons(steps: Sequence[Metrics], equal_share: float, least_share: float) -> Iterator[str]:
    """Yield equal rewards from `equal_share` of the groups on, the rest from `least_share` on."""
    equal = fmean(metrics.get("filtered/zero_variance", 0.0) for metrics in steps)
    if equal >= equal_share:
        reward = fmean(metrics.get("reward_mean", 0.0) for metrics in steps)
        yield (
            f"{equal:.0%} of all groups had equal rewards (mean {reward:.2f}) and taught nothing: "
            "the task is too hard or too easy for the policy, or its reward does not tell "
            "sessions apart"
        )
    if equal < 1:  # where all groups are filtered, masks change nothing
        masked = _family(steps, "masked/")
        for share, count, reason in _shares(masked, _sum(steps, "tokens_trained"), least_share):
            yield f"{share} of the sampled tokens were not trained: {reason} ({count})"
    dropped = _family(steps, "dropped/")
    for share, count, reason in _shares(dropped, _sum(steps, "groups"), least_share):
        yield f"{share} of the groups were dropped as {reason} ({count}, see GroupDropped)"
    failed = {"failed": _sum(steps, "samples_failed")}
    for share, count, _ in _shares(failed, _sum(steps, "sessions"), least_share):
        yield f"{share} of the sessions failed and did not count ({count}, see SampleFailed)"


def _shares(
    counts: Mapping[str, float], others: float, least: float
) -> Iterator[tuple[str, str, str]]:
    """Yield share, count and reason of each count above 0, the largest first.

    The shares are of all counts and `others` together; those below `least` are left out.
    """
    total = others + sum(counts.values())
    for reason, count in sorted(counts.items(), key=lambda item: -item[1]):
        if count > 0 and count / total >= least:
            yield f"{count / total:.0%}", f"{count:,.0f}", reason


def _family(steps: Sequence[Metrics], prefix: str) -> dict[str, float]:
    names = {name for metrics in steps for name in metrics if name.startswith(prefix)}
    return {name.removeprefix(prefix): _sum(steps, name) for name in sorted(names)}


def _sum(steps: Sequence[Metrics], name: str) -> float:
    return sum(metrics.get(name, 0.0) for metrics in steps)
