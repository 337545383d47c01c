"""League: which past version a group plays against, by the results of earlier games. Pure.

FightLadder's code (`main/common/league.py`, arXiv 2406.02081), after AlphaStar's league, for a run
with one main player. In 50 % of draws the opponent is a past version, weighted by the player's win
rate against it (prioritized fictitious self-play). Another 15 % of draws verify that no past
version was forgotten. The rest, and verifications without such a version, play against the newest
version, the player itself. A drawn opponent stays for several groups (ours), since workers have to
load it.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from seamlessflow.scheduler.sampling.ask import Candidate, Opponent, TaskChoice
from seamlessflow.scheduler.state.ledger import OPPONENT_GROUP

PAST_SHARE = 0.5
VERIFIED_SHARE = 0.15
FORGOTTEN = 0.7
"""Win rate below which a past version counts as forgotten."""
_ZERO = 1e-10
"""If the weights sum to less, all past versions are drawn alike."""
WEIGHTS: Mapping[str, Callable[[float], float]] = {
    "squared": lambda rate: (1 - rate) ** 2,
    "variance": lambda rate: rate * (1 - rate),
    "linear": lambda rate: 1 - rate,
    "capped": lambda rate: min(0.5, 1 - rate),
}
"""Weight functions by name: from the player's win rate against a past version to its weight."""


class DrawnOpponent(NamedTuple):
    """An opponent, and the figures that decided its draw."""

    version: int
    figures: Mapping[str, float]


def league(
    candidate: Candidate,
    choice: TaskChoice,
    source: random.Random,
    *,
    weight: str = "squared",
    groups: int | None = None,
) -> TaskChoice:
    """Return a group's opponent: a past version by its win rate, or the newest one.

    FightLadder, arXiv 2406.02081. A drawn opponent stays for this many `groups` (ours); None: for a
    step's groups. While no version can be shown, the choice stays as it is.
    """
    opponents = candidate.opponents
    if opponents is None:
        return choice
    place = opponents.groups
    if opponents.present is not None and 0 < place < (groups or opponents.groups_per_step):
        figures = {**choice.figures, OPPONENT_GROUP: float(place)}
        return replace(choice, opponent=opponents.present, figures=figures)
    drawn = draw(opponents.past, opponents.newest, source, weight)
    figures = {**choice.figures, OPPONENT_GROUP: 0.0, **drawn.figures}
    return replace(choice, opponent=drawn.version, figures=figures)


def draw(
    past: Sequence[Opponent], newest: int, source: random.Random, weight: str = "squared"
) -> DrawnOpponent:
    """Return an opponent: one of the `past` versions, oldest first, or the `newest`."""
    coin = source.random()
    if coin < PAST_SHARE and past:
        return _weighted(past, source, weight, 0)
    if PAST_SHARE <= coin < PAST_SHARE + VERIFIED_SHARE:
        before_rises = without_monotonic_end(past)
        if before_rises and min(each.win_rate for each in before_rises) < FORGOTTEN:
            return _weighted(before_rises, source, "squared", 1)
    return DrawnOpponent(newest, {"opponent_branch": 2.0})


def without_monotonic_end(past: Sequence[Opponent]) -> Sequence[Opponent]:
    """Return the versions up to the last one that is easier than the version before it.

    After it each version is as hard as the one before it or harder, as expected when a player
    learns. If there is no such version, nothing was forgotten, and none is returned.
    """
    for place in range(len(past) - 1, 0, -1):
        if past[place - 1].win_rate < past[place].win_rate:
            return past[: place + 1]
    return ()


def shares(rates: Sequence[float], weight: str) -> Sequence[float]:
    """Return a chance for each of the player's win rates; equal if all weights are zero."""
    weights = [WEIGHTS[weight](rate) for rate in rates]
    total = sum(weights)
    if total < _ZERO:
        return [1 / len(rates)] * len(rates)
    return [each / total for each in weights]


def _weighted(
    past: Sequence[Opponent], source: random.Random, weight: str, branch: int
) -> DrawnOpponent:
    chances = shares([each.win_rate for each in past], weight)
    (place,) = source.choices(range(len(past)), chances)
    figures = {
        "opponent_branch": float(branch),
        "opponent_win_rate": past[place].win_rate,
        "opponent_chance": chances[place],
    }
    return DrawnOpponent(past[place].version, figures)
