"""Advantage estimators: from the returns of a group's sessions to one advantage per session.

Every trained token of a session gets the advantage of its session. Estimators are registered by
name (`ESTIMATORS`, the setting `trainer.advantage`); `batch.py` calls them. `_S` counts the
sessions of a group.
"""

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

Returns = NDArray[np.float64]
Estimator = Callable[[Returns], Returns]

EQUAL = 1e-8
"""Returns that differ by no more than this are equal: their spread is rounding, and dividing by it
would make large advantages of it."""


def grpo(returns_S: Returns) -> Returns:
    """Return (r - mean) / standard deviation of the group; zeros if all returns are equal.

    Group relative policy optimization, arXiv 2402.03300, with the population's deviation.
    """
    if not varied(returns_S):
        return np.zeros_like(returns_S)
    return np.asarray((returns_S - returns_S.mean()) / returns_S.std())


def grpo_unscaled(returns_S: Returns) -> Returns:
    """Return r - mean of the group, without scaling by the spread of the returns.

    Dr. GRPO, arXiv 2503.20783.
    """
    return np.asarray(returns_S - returns_S.mean())


def rloo(returns_S: Returns) -> Returns:
    """Return r - mean of the other sessions; zero for a group of one session.

    REINFORCE leave-one-out, arXiv 2402.14740.
    """
    others = len(returns_S) - 1
    if not others:
        return np.zeros_like(returns_S)
    return np.asarray((returns_S - returns_S.mean()) * (len(returns_S) / others))


def varied(returns_S: Returns) -> bool:
    """Return whether the returns differ by more than `EQUAL`."""
    return bool(np.ptp(returns_S) > EQUAL) if len(returns_S) else False


ESTIMATORS: Mapping[str, Estimator] = {"grpo": grpo, "grpo_unscaled": grpo_unscaled, "rloo": rloo}
