"""Balance of shared rollout workers between the policies of a run, by their queued turns. Pure.

A worker moves only where that makes the numbers clearly more proportional, and only one that has
served its policy for a while, so that loads that waver move none. Called by `allotment.py`.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

HYSTERESIS = 0.25
"""Workers by which the two policies of a move must be apart, beyond the one that moves."""


def balanced(
    policies: Sequence[str],
    present: Mapping[str, str],
    fixed: Mapping[str, int],
    queued: Mapping[str, float],
    movable: Collection[str],
) -> dict[str, str]:
    """Return the policy of each shared worker.

    `present` is the policy of each now, empty for a new one; `fixed`: rollout workers that each
    policy has for itself; `queued`: turns that wait or run; `movable`: workers that may move.
    """
    chosen = {name: policy for name, policy in present.items() if policy in policies}
    counts = Counter({policy: fixed.get(policy, 0) for policy in policies})
    counts.update(chosen.values())
    wanted = proportional(policies, len(present) + sum(fixed.values()), queued)
    for name in sorted(present.keys() - chosen.keys()):
        taker = _most_lacking(policies, wanted, counts)
        chosen[name] = taker
        counts[taker] += 1
    free = sorted(name for name in movable if name in chosen)
    while move := _next_move(policies, chosen, free, wanted, counts):
        name, taker = move
        counts[chosen[name]] -= 1
        counts[taker] += 1
        chosen[name] = taker
        free.remove(name)
    return chosen


def proportional(
    policies: Sequence[str], workers: int, queued: Mapping[str, float]
) -> Mapping[str, float]:
    """Return the number of workers of each policy that would be proportional to its turns."""
    total = sum(queued.get(policy, 0.0) for policy in policies)
    if total <= 0:
        return {policy: workers / len(policies) for policy in policies}
    return {policy: workers * queued.get(policy, 0.0) / total for policy in policies}


def _most_lacking(
    policies: Sequence[str], wanted: Mapping[str, float], counts: Mapping[str, int]
) -> str:
    # A policy without any worker comes first: its turns stand still, and no worker tells of them.
    return max(policies, key=lambda policy: (counts[policy] == 0, wanted[policy] - counts[policy]))


def _next_move(
    policies: Sequence[str],
    chosen: Mapping[str, str],
    free: Sequence[str],
    wanted: Mapping[str, float],
    counts: Mapping[str, int],
) -> tuple[str, str] | None:
    """Return a worker and its new policy, or None if no move is worth it."""
    taker = _most_lacking(policies, wanted, counts)
    givers = {chosen[name] for name in free if counts[chosen[name]] > 1} - {taker}
    if not givers:
        return None
    giver = max(sorted(givers), key=lambda policy: counts[policy] - wanted[policy])
    apart = (counts[giver] - wanted[giver]) + (wanted[taker] - counts[taker])
    if counts[taker] and apart <= 1 + HYSTERESIS:
        return None
    return next(name for name in free if chosen[name] == giver), taker
