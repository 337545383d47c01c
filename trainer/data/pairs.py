"""Pairs of sessions in a group, of which the policy is to prefer one to the other.

Rules are registered by name (`PAIR_RULES`, the setting `trainer.pairs.name`). `batch.py` applies
them to the sessions that have tokens to train; `credit/pairs.py` computes the losses of the pairs.
Pure.
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
"""Reason for tokens in sessions without a pair."""
Places = Sequence[tuple[int, int]]
"""Pairs of sessions by their places in the group, the preferred one first."""
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
    """Preference of the policy for it before the step; None until the batch is annotated."""

    @property
    def names(self) -> tuple[str, str]:
        """Return the ids of both sessions, the chosen one first."""
        return self.chosen, self.rejected


def extremes(episodes: Sequence[Episode]) -> list[tuple[int, int]]:
    """Return the session of highest return with that of lowest; none if all are equal.

    The best against the worst, as MNPO has it, arXiv 2509.23102. Of equal returns the earlier
    sample counts.
    """
    returns = [episode.reward for episode in episodes]
    if len(returns) < 2 or not varied(np.asarray(returns)):
        return []
    return [(returns.index(max(returns)), returns.index(min(returns)))]


def each_with_each(episodes: Sequence[Episode]) -> list[tuple[int, int]]:
    """Return each pass with each failure. A pass is a return of at least 1."""
    passes = [place for place, episode in enumerate(episodes) if episode.reward >= PASSED]
    failures = [place for place, episode in enumerate(episodes) if episode.reward < PASSED]
    return list(product(passes, failures))


PAIR_RULES: Mapping[str, PairRule] = {"extremes": extremes, "all": each_with_each}


def paired(
    group: Group, episodes: Sequence[Episode], rules: PairRules
) -> tuple[Group, tuple[SessionPair, ...]]:
    """Return a group's pairs, and the group with all other sessions marked left out.

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
    """Return a rule's answer. Raises `ResultMalformed`."""
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
