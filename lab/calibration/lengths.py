"""Lengths of sampled turns of a recorded run, as `LengthsSection` has them. Pure.

A log-normal distribution cut off at the longest turn; the part of its variance that a group shares
is the intraclass correlation of the logarithms (one-way analysis of variance).
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from math import erf, exp, log, sqrt
from statistics import fmean, pstdev

_ROUNDS = 30


def measured_lengths(turns: Iterable[tuple[str, int]]) -> dict[str, float]:
    """Return the values for (group, tokens of a turn); none for no turn."""
    groups: defaultdict[str, list[float]] = defaultdict(list)
    for group, tokens in turns:
        groups[group].append(log(max(1, tokens)))
    logarithms = [logarithm for values in groups.values() for logarithm in values]
    if not logarithms:
        return {}
    spread = pstdev(logarithms)
    most = exp(max(logarithms))
    mean = fmean(exp(logarithm) for logarithm in logarithms)
    return {
        "turn_tokens": _uncut_mean(mean, spread, most),
        "spread": spread,
        "most_tokens": round(most),
        "prompt_effect": shared_part(groups),
    }


def shared_part(groups: Mapping[str, Sequence[float]]) -> float:
    """Return the share of the variance that is between the groups, 0 to 1."""
    several = [group for group in groups.values() if len(group) > 1]
    count = sum(len(group) for group in several)
    if len(several) < 2:
        return 0.0
    whole = sum(sum(group) for group in several) / count
    between = sum(len(group) * (fmean(group) - whole) ** 2 for group in several) / (
        len(several) - 1
    )
    within = sum((value - fmean(group)) ** 2 for group in several for value in group) / (
        count - len(several)
    )
    size = (count - sum(len(group) ** 2 for group in several) / count) / (len(several) - 1)
    total = between + (size - 1) * within
    return min(1.0, max(0.0, (between - within) / total)) if total > 0 else 0.0


def _uncut_mean(mean: float, spread: float, most: float) -> float:
    """Return the mean of the distribution whose draws, cut off at `most`, have this mean."""
    if spread == 0 or mean >= most:
        return mean
    uncut = mean
    for _ in range(_ROUNDS):
        uncut *= mean / _cut_mean(uncut, spread, most)
    return uncut


def _cut_mean(mean: float, spread: float, most: float) -> float:
    """Return the mean of a log-normal distribution whose draws are cut off."""
    middle = log(mean) - spread**2 / 2
    to_cut = (log(most) - middle) / spread
    return mean * _normal(to_cut - spread) + most * (1 - _normal(to_cut))


def _normal(value: float) -> float:
    return (1 + erf(value / sqrt(2))) / 2
