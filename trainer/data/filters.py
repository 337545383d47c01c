"""Filters: named rules that keep groups without a gradient out of the loss.

Each rule has an action for such a group. `count`: the group fills its place in the batch and in the
loss's means. Its credit returns with the step. Its tokens have no advantage. They are computed
only if the loss has a term for each token. `drop`: another group takes its place. Rules are
registered by name (`FILTERS`, the setting `trainer.filters`); `batch.py` applies them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from seamlessflow.infra.user_functions import OwnSettings, chosen
from seamlessflow.trainer.credit import FilterAction
from seamlessflow.trainer.data.advantages import ReturnRules, first_return, varied
from seamlessflow.trainer.data.chains import Chain
from seamlessflow.trainer.data.episodes import Episode
from seamlessflow.trainer.data.methods import checked_verdict, method


@dataclass(frozen=True, slots=True)
class GroupView:
    """A group as a filter sees it."""

    episodes: Sequence[Episode]
    """Its sessions, in sample order."""
    chains: Sequence[Chain]
    """Chains that have a token that may be trained, with their advantages."""

    @property
    def returns(self) -> list[float]:
        """Return each session's return."""
        return [episode.reward for episode in self.episodes]


Filter = Callable[[GroupView, ReturnRules], bool]
"""Returns whether the group leaves the loss."""


def zero_variance(group: GroupView, _: ReturnRules) -> bool:
    """Return whether all sessions have the same return, and no token has an advantage."""
    credited = any(chain.tokens.advantages_T.any() for chain in group.chains)
    return not credited and not varied(np.asarray(group.returns))


def untrainable(group: GroupView, _: ReturnRules) -> bool:
    """Return whether the group has no token that may be trained."""
    return not group.chains


def spread(group: GroupView, rules: ReturnRules) -> bool:
    """Return whether the first turns' returns have a standard deviation up to `spread_over`.

    It is the population's deviation. A group without a trained token also leaves. UI-S1
    (arXiv 2509.11543) keeps groups above 0.3.
    """
    returns = [first_return(episode, rules) for episode in group.episodes if len(episode)]
    return not returns or float(np.std(returns)) <= rules.spread_over


FILTERS: Mapping[str, Filter] = {
    "zero_variance": zero_variance,
    "untrainable": untrainable,
    "spread": spread,
}


def verdict(
    filters: Mapping[str, FilterAction],
    group: GroupView,
    rules: ReturnRules,
    settings: OwnSettings = MappingProxyType({}),
) -> tuple[str, FilterAction] | None:
    """Return the name and action of the first filter that applies, or None if none does.

    They are tried in the setting's order. `settings`: settings for the user's own filters. Raises
    `MethodFailed`.
    """
    for name, action in filters.items():
        with method("filter", name):
            applies = checked_verdict(chosen(FILTERS, name, settings)(group, rules))
        if applies:
            return name, action
    return None
