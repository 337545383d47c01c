"""Filters: named rules that keep groups without a gradient out of the loss.

Each rule has an action for such a group. `count`: the group fills its place in the batch and in the
means of the loss. Its credit returns with the step. Its tokens have no advantage. They are computed
only if the loss has a term for each token. `drop`: another group takes its place. Rules are
registered by name (`FILTERS`, the setting `trainer.filters`); `batch.py` applies them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from seamlessflow.infra.user_functions import OwnSettings, chosen
from seamlessflow.trainer.credit import FilterAction
from seamlessflow.trainer.data.advantages import varied
from seamlessflow.trainer.data.chains import Chain
from seamlessflow.trainer.data.episodes import Episode
from seamlessflow.trainer.data.methods import checked_verdict, method


@dataclass(frozen=True, slots=True)
class GroupView:
    """A group as a filter sees it."""

    episodes: Sequence[Episode]
    """Its sessions, in the order of their samples."""
    chains: Sequence[Chain]
    """Chains with a token that may be trained, with their advantages."""

    @property
    def returns(self) -> list[float]:
        """Return the returns of its sessions."""
        return [episode.reward for episode in self.episodes]


Filter = Callable[[GroupView], bool]
"""Returns whether the group leaves the loss."""


def zero_variance(group: GroupView) -> bool:
    """Return whether all sessions have the same return, and no token has an advantage."""
    credited = any(chain.tokens.advantages_T.any() for chain in group.chains)
    return not credited and not varied(np.asarray(group.returns))


def untrainable(group: GroupView) -> bool:
    """Return whether no token of the group may be trained."""
    return not group.chains


FILTERS: Mapping[str, Filter] = {"zero_variance": zero_variance, "untrainable": untrainable}


def verdict(
    rules: Mapping[str, FilterAction], group: GroupView, settings: OwnSettings
) -> tuple[str, FilterAction] | None:
    """Return the name and action of the first rule that applies, or None if none does.

    `rules` are tried in the order of the setting. Raises `MethodFailed`.
    """
    for name, action in rules.items():
        with method("filter", name):
            applies = checked_verdict(chosen(FILTERS, name, settings)(group))
        if applies:
            return name, action
    return None
