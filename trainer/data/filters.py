"""Groups that teach nothing: named rules, and whether what they find still counts for the batch.

A group that is counted fills its place in the batch and its credit returns with the step; a dropped
one leaves its place to another. Registered by name (`FILTERS`); called by the dataloader.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import numpy as np

from trainer.data.advantages import varied
from trainer.data.chains import Chain

Action = Literal["count", "drop"]
Filter = Callable[[Sequence[float], Sequence[Chain]], bool]
"""Whether the rule takes a group with these returns (one a session) and chains out of the loss."""


def zero_variance(returns: Sequence[float], _: Sequence[Chain]) -> bool:
    """All sessions returned the same: no advantage, no gradient."""
    return not varied(np.asarray(returns))


def untrainable(_: Sequence[float], chains: Sequence[Chain]) -> bool:
    """No token of the group may be trained."""
    return not chains


FILTERS: Mapping[str, Filter] = {"zero_variance": zero_variance, "untrainable": untrainable}


def verdict(
    rules: Mapping[str, Action], returns: Sequence[float], chains: Sequence[Chain]
) -> tuple[str, Action] | None:
    """The first rule that applies, with what it asks for; `rules` in the order they were set."""
    for name, action in rules.items():
        if FILTERS[name](returns, chains):
            return name, action
    return None
