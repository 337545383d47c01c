"""Trial of a user's mixer on a small input. Pure.

It returns what the mixer gave, so that two results can be compared. It raises what the mixer
raises, and `ResultMalformed`.
"""

import random
from collections.abc import Callable
from typing import Any

from seamlessflow.trainer.replay.mixers import FreshGroup, FreshSession, Plan, checked_plan
from seamlessflow.trainer.replay.pools import Pool, PoolView, StoredGroup, StoredSession
from seamlessflow.trainer.stored import OWN

_STEP = 4
_FRESH = {"a": (0.0, 0.0, 0.0), "b": (1.0, 0.0, 0.0), "c": (0.0, 0.0, 0.0)}
"""Returns of the new groups, by task."""
_STORED = {"a": (1.0, 0.0), "b": (1.0, 1.0), "d": (0.5, 0.0)}
"""Returns of the stored groups of a pool, by task."""


def small_step() -> tuple[list[FreshGroup], dict[str, PoolView]]:
    """Return three new groups, of which two failed whole, and two pools of three groups each."""
    fresh = [
        FreshGroup(
            f"group-{task}",
            task,
            tuple(
                FreshSession(f"group-{task}.{number}", value, number)
                for number, value in enumerate(returns)
            ),
        )
        for task, returns in _FRESH.items()
    ]
    pools = {name: _pool(name).at(_STEP) for name in (OWN, "experts")}
    return fresh, pools


def try_mixer(function: Callable[..., Any]) -> Plan:
    """Call a function of the seam `trainer.replay.name`."""
    fresh, pools = small_step()
    source = random.Random(0)  # nosec B311 # repeatable draws
    return checked_plan(function(_STEP, fresh, pools, source), fresh, pools)


def _pool(name: str) -> Pool:
    pool = Pool(name)
    for number, (task, returns) in enumerate(_STORED.items()):
        sessions = tuple(
            StoredSession(f"{name}/{task}.{sample}", 0, len(returns) * number + sample, value)
            for sample, value in enumerate(returns)
        )
        step = number if name == OWN else None
        pool.put(StoredGroup(name, f"{name}/{task}", task, step, sessions))
    return pool
