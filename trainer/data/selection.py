"""Selections: which sessions in a group are trained. Sample many, train few.

Registered by name (`SELECTIONS`, the setting `trainer.selection.name`); `batch.py` applies them
before advantages are estimated. Random numbers are seeded by the group, so a step that is executed
again selects the same sessions. Pure.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate

import numpy as np

from seamlessflow.infra.user_functions import OwnSettings, ResultMalformed, chosen
from seamlessflow.trainer.data.episodes import Episode
from seamlessflow.trainer.data.figures.chances import PASSED
from seamlessflow.trainer.data.grouping import Group
from seamlessflow.trainer.data.methods import method

UNSELECTED = "unselected"
"""Reason why tokens are masked: their session is not selected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectionRules:
    """A selection's settings, `trainer.selection`."""

    name: str = ""
    """Empty: all sessions are trained."""
    best: int = 12
    worst: int = 12
    keep: int = 8
    baseline: str = "selected"
    """The sessions whose returns are compared for advantages: `selected` or `all`."""
    seed: int = 0
    functions: OwnSettings = field(default_factory=dict)
    """Settings for a user's selection."""


SelectionMethod = Callable[[Sequence[Episode], SelectionRules, random.Random], Sequence[bool]]
"""Returns for each session in a group whether it is trained."""


def extremes(episodes: Sequence[Episode], rules: SelectionRules, _: random.Random) -> list[bool]:
    """Select the `best` sessions with the highest returns, and the `worst` with the lowest.

    Sol-RL, arXiv 2604.06916. Among equal returns an earlier sample ranks as lower.
    """
    order = _by_return(episodes)
    if len(order) <= rules.best + rules.worst:
        return [True] * len(order)
    return _only([*order[: rules.worst], *order[len(order) - rules.best :]], len(order))


def max_variance(
    episodes: Sequence[Episode], rules: SelectionRules, _: random.Random
) -> list[bool]:
    """Select the `keep` sessions whose returns have the largest variance.

    PODS, arXiv 2504.13818: these are always some sessions with the lowest returns and the rest with
    the highest. Prefix sums give each division's variance. Among equal variances the most even
    division wins.
    """
    order = _by_return(episodes)
    keep = min(rules.keep, len(order))
    returns = [episodes[place].reward for place in order]
    # Relative to the mean, so that no digits are lost if all returns are large.
    mean = float(np.mean(returns)) if returns else 0.0
    sums = [0.0, *accumulate(value - mean for value in returns)]
    squares = [0.0, *accumulate((value - mean) ** 2 for value in returns)]

    def spread(lowest: int) -> tuple[float, int]:
        start = len(order) - (keep - lowest)
        total = sums[lowest] + sums[-1] - sums[start]
        square = squares[lowest] + squares[-1] - squares[start]
        return square - total**2 / max(keep, 1), -abs(keep - 2 * lowest)

    lowest = max(range(keep + 1), key=spread)
    return _only([*order[:lowest], *order[len(order) - (keep - lowest) :]], len(order))


def balanced(
    episodes: Sequence[Episode], rules: SelectionRules, source: random.Random
) -> list[bool]:
    """Select `keep` sessions at random, with at least one pass and one failure if there are both.

    DART, arXiv 2509.23866, as in its code. A pass is a return of at least 1.
    """
    keep = min(rules.keep, len(episodes))
    passes = [place for place, episode in enumerate(episodes) if episode.reward >= PASSED]
    failures = [place for place, episode in enumerate(episodes) if episode.reward < PASSED]
    sure = [source.choice(places) for places in (passes, failures) if places and keep > 1]
    rest = [place for place in range(len(episodes)) if place not in sure]
    return _only([*sure, *source.sample(rest, keep - len(sure))], len(episodes))


SELECTIONS: Mapping[str, SelectionMethod] = {
    "extremes": extremes,
    "max_variance": max_variance,
    "balanced": balanced,
}


def selected(group: Group, episodes: Sequence[Episode], rules: SelectionRules) -> Group:
    """Return the group, its unselected sessions marked left out.

    Sessions that are left out for another reason are no candidates. Raises `MethodFailed`.
    """
    places = [place for place, session in enumerate(group.members) if not session.left_out]
    with method("selection", rules.name):
        source = random.Random(f"{rules.seed} {group.group_id}")  # nosec B311 # repeatable draws
        select = chosen(SELECTIONS, rules.name, rules.functions)
        verdicts = checked_selection(
            select([episodes[place] for place in places], rules, source), len(places)
        )
    out = {place for place, verdict in zip(places, verdicts, strict=True) if not verdict}
    members = [
        replace(session.without(UNSELECTED), compared=rules.baseline == "all")
        if place in out
        else session
        for place, session in enumerate(group.members)
    ]
    return group.with_members(members)


def checked_selection(verdicts: Sequence[bool], count: int) -> list[bool]:
    """Return a selection's verdicts after a check. Raises `ResultMalformed`."""
    if len(verdicts) != count:
        raise ResultMalformed(f"verdicts on {len(verdicts)} sessions", f"on {count}")
    for verdict in verdicts:
        if not isinstance(verdict, (bool, np.bool_)):
            raise ResultMalformed(f"{verdict!r:.80}", "True or False for each session")
    return [bool(verdict) for verdict in verdicts]


def _by_return(episodes: Sequence[Episode]) -> list[int]:
    """Return the sessions' places, from the lowest return to the highest."""
    return sorted(range(len(episodes)), key=lambda place: episodes[place].reward)


def _only(places: Sequence[int], count: int) -> list[bool]:
    return [place in set(places) for place in range(count)]
