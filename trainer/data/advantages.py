"""Advantage estimators: the returns of a group's sessions to one advantage a session.

Baseline and advantage belong to the session; every trained token of a session gets the session's.
Registered by name (`ESTIMATORS`); called by the dataloader. `_S` counts the sessions of a group.
"""

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

Returns = NDArray[np.float64]
Estimator = Callable[[Returns], Returns]

EQUAL = 1e-8
"""Returns closer together than this are the same return."""


def grpo(returns_S: Returns) -> Returns:
    """(r - mean) / standard deviation of the group; zero where all are equal.

    Group relative policy optimization, arXiv 2402.03300, with the population's deviation.
    """
    if not varied(returns_S):
        return np.zeros_like(returns_S)
    return np.asarray((returns_S - returns_S.mean()) / returns_S.std())


def grpo_unscaled(returns_S: Returns) -> Returns:
    """r - mean of the group, so that easy and hard tasks weigh as their returns do.

    Dr. GRPO, arXiv 2503.20783.
    """
    return np.asarray(returns_S - returns_S.mean())


def rloo(returns_S: Returns) -> Returns:
    """r - mean of the other sessions; zero for a session alone. REINFORCE leave-one-out,
    2402.14740.
    """
    others = len(returns_S) - 1
    if not others:
        return np.zeros_like(returns_S)
    return np.asarray((returns_S - returns_S.mean()) * (len(returns_S) / others))


def varied(returns_S: Returns) -> bool:
    """Whether the returns differ at all."""
    return bool(np.ptp(returns_S) > EQUAL) if len(returns_S) else False


ESTIMATORS: Mapping[str, Estimator] = {
    "grpo": grpo,
    "grpo_unscaled": grpo_unscaled,
    "rloo": rloo,
}
