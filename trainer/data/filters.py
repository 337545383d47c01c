"""Filters: named rules that keep groups without a gradient out of the loss.

Each rule has an action for such a group. `count`: the group fills its place in the batch and in the
means of the loss. Its credit returns with the step. Its tokens have no advantage. They are computed
only if the loss has a term for each token. `drop`: another group takes its place. Rules are
registered by name (`FILTERS`, the setting `trainer.filters`); `batch.py` applies them.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from seamlessflow.trainer.credit import FilterAction
from seamlessflow.trainer.data.advantages import varied
from seamlessflow.trainer.data.chains import Chain
from seamlessflow.trainer.data.methods import checked_verdict, method

Filter = Callable[[Sequence[float], Sequence[Chain]], bool]
"""Returns whether a group with these returns (one per session) and chains leaves the loss."""


def zero_variance(returns: Sequence[float], chains: Sequence[Chain]) -> bool:
    """Return whether all sessions have the same return, and no token has an advantage."""
    credited = any(chain.tokens.advantages_T.any() for chain in chains)
    return not credited and not varied(np.asarray(returns))


def untrainable(_: Sequence[float], chains: Sequence[Chain]) -> bool:
    """Return whether no token of the group may be trained."""
    return not chains


FILTERS: Mapping[str, Filter] = {"zero_variance": zero_variance, "untrainable": untrainable}


def verdict(
    rules: Mapping[str, FilterAction], returns: Sequence[float], chains: Sequence[Chain]
) -> tuple[str, FilterAction] | None:
    """Return the name and action of the first rule that applies, or None if none does.

    `rules` are tried in the order of the setting. Raises `MethodFailed`.
    """
    for name, action in rules.items():
        with method("filter", name):
            applies = checked_verdict(FILTERS[name](returns, chains))
        if applies:
            return name, action
    return None
