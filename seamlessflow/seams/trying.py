"""Trials for a user's functions, before a run: each is called twice on a small input.

The first call may build what later ones use, so only the second is timed.
"""

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from seamlessflow.infra.user_functions import (
    FunctionUnusable,
    ResultMalformed,
    place_of,
    user_function,
)
from seamlessflow.producers.rollout.control.contract import try_control
from seamlessflow.scheduler.sampling.trials import (
    try_fork_prediction,
    try_prediction,
    try_sampler,
    try_terms,
)
from seamlessflow.trainer.data.trials import (
    try_advantage,
    try_aggregation,
    try_filter,
    try_mask,
    try_pairs,
    try_selection,
)
from seamlessflow.trainer.mixing.mixers import try_mixer

_LONGEST_S = 1.0

Trial = Callable[[Callable[..., Any]], object]
"""Calls a function on a small input; returns its result as something that can be compared."""


def trial_of(setting: tuple[str, ...]) -> Trial:
    """Return a seam's trial, by its setting. Trials for losses import torch."""
    match setting:
        case ("trainer", "advantage"):
            return try_advantage
        case ("trainer", "filters"):
            return try_filter
        case ("trainer", "selection", "name"):
            return try_selection
        case ("trainer", "pairs", "name"):
            return try_pairs
        case ("trainer", "masks"):
            return try_mask
        case ("trainer", "replay", "name"):
            return try_mixer
        case ("pacing", "sampler", "name"):
            return try_sampler
        case ("pacing", "sampler", "predict"):
            return try_prediction
        case ("pacing", "forks_predict"):
            return try_fork_prediction
        case ("pacing", "terms", "name"):
            return try_terms
        case ("rollout", "control", "name"):
            return try_control
        case ("trainer", "loss", "aggregation"):
            return try_aggregation
        case ("trainer", "loss", "surrogate"):
            from seamlessflow.trainer.backends.losses.trials import try_surrogate

            return try_surrogate
        case ("trainer", "loss", "correction"):
            from seamlessflow.trainer.backends.losses.trials import try_correction

            return try_correction
    from seamlessflow.scheduler.decisions.strategies.registry import try_strategy

    return try_strategy


def fault_of(setting: tuple[str, ...], name: str, settings: Mapping[str, Any]) -> str:
    """Return why a function cannot be used at a seam; empty if it can."""
    try:
        call = partial(user_function(name).call, **settings)
    except FunctionUnusable as error:
        return error.reason
    trial = trial_of(setting)
    try:
        first = trial(call)
        began = time.monotonic()
        second = trial(call)
        lasted_s = time.monotonic() - began
    except ResultMalformed as error:
        return f"cannot be used: for a small input {error}"
    except BaseException as error:  # a user's function may raise anything, SystemExit also
        place = place_of(error)
        return f"fails for a small input: {place}{type(error).__name__}: {error}"
    if first != second:
        return f"is not pure: for one input it gave {first!r:.80}, then {second!r:.80}"
    if lasted_s > _LONGEST_S:
        return f"took {lasted_s:.1f} s for a small input; it has {_LONGEST_S:g} s"
    return ""
