"""Session pairs: two sessions from a group, where the policy should prefer one to the other.

Rules are registered by name (`PAIR_RULES`, the setting `trainer.pairs.name`). `batch.py` applies
them to the sessions that have tokens to train; `credit/pairs.py` computes the pairs' losses. Pure.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from operator import index

import numpy as np

from seamlessflow.infra.user_functions import OwnSettings, ResultMalformed, chosen
from seamlessflow.trainer.data.advantages import varied
from seamlessflow.trainer.data.episodes import Episode
from seamlessflow.trainer.data.figures.chances import PASSED
from seamlessflow.trainer.data.grouping import Group
from seamlessflow.trainer.data.methods import method

UNPAIRED = "unpaired"
"""Reason why tokens are masked: their session is in no pair."""
Places = Sequence[tuple[int, int]]
"""Session pairs, as places in the group; the preferred session comes first."""
PairRule = Callable[[Sequence[Episode]], Places]


@dataclass(frozen=True, slots=True, kw_only=True)
class PairRules:
    """A rule's settings, `trainer.pairs`."""

    name: str = ""
    """Empty: the loss compares no pairs."""
    functions: OwnSettings = field(default_factory=dict)
    """Settings for a user's rule."""


@dataclass(frozen=True, slots=True)
class SessionPair:
    """A group's two sessions, by their ids."""

    chosen: str
    """The session that the policy is to prefer."""
    rejected: str
    margin: float | None = None
    """The policy's preference for `chosen` before the step; None until the batch is annotated."""

    @property
    def names(self) -> tuple[str, str]:
        """Return both sessions' ids, the chosen one first."""
        return self.chosen, self.rejected


def extremes(episodes: Sequence[Episode]) -> list[tuple[int, int]]:
    """Pair the session with the highest return and the one with the lowest.

    The best against the worst, as in MNPO, arXiv 2509.23102. With equal returns the earlier sample
    counts; if all returns are equal, there is no pair.
    """
    returns = [episode.reward for episode in episodes]
    if len(returns) < 2 or not varied(np.asarray(returns)):
        return []
    return [(returns.index(max(returns)), returns.index(min(returns)))]


def each_with_each(episodes: Sequence[Episode]) -> list[tuple[int, int]]:
    """Pair each pass with each failure. A pass is a return of at least 1."""
    passes = [place for place, episode in enumerate(episodes) if episode.reward >= PASSED]
    failures = [place for place, episode in enumerate(episodes) if episode.reward < PASSED]
    return list(product(passes, failures))


PAIR_RULES: Mapping[str, PairRule] = {"extremes": extremes, "all": each_with_each}


def paired(
    group: Group, episodes: Sequence[Episode], rules: PairRules
) -> tuple[Group, tuple[SessionPair, ...]]:
    """Return the group, its unpaired sessions marked left out, and its pairs.

    Sessions without a token to train, or left out before, are no candidates. Raises `MethodFailed`.
    """
    members = group.members
    places = [
        place for place, session in enumerate(members) if session.chains and not session.left_out
    ]
    with method("pairs", rules.name):
        choose = chosen(PAIR_RULES, rules.name, rules.functions)
        answer = checked_pairs(choose([episodes[place] for place in places]), len(places))
    names = [members[place].source.session_id for place in places]
    pairs = tuple(SessionPair(names[better], names[worse]) for better, worse in answer)
    compared = {name for pair in pairs for name in pair.names}
    alone = set(names) - compared
    marked = [
        session.without(UNPAIRED) if session.source.session_id in alone else session
        for session in members
    ]
    return group.with_members(marked), pairs


def checked_pairs(pairs: Places, count: int) -> list[tuple[int, int]]:
    """Return a rule's pairs after a check. Raises `ResultMalformed`."""
    expected = f"pairs of two different places below {count}, each once"
    checked = []
    for pair in pairs:
        if len(pair) != 2:
            raise ResultMalformed(f"{pair!r:.80}", expected)
        better, worse = (index(place) for place in pair)
        if better == worse or not (0 <= better < count and 0 <= worse < count):
            raise ResultMalformed(f"{pair!r:.80}", expected)
        checked.append((better, worse))
    if len(set(checked)) < len(checked):
        raise ResultMalformed("a pair twice", expected)
    return checked
