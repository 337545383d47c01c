"""Sharing: which workers each of the run's policies has. Pure.

A worker belongs to the policy that its processes name in their heartbeats. A worker with the tag
`shared` gets its policy from the balance, which weighs the turns that wait or run for each policy.
Strategies then decide for each policy on its own workers. A shared worker moves only if that makes
the numbers clearly more proportional. It must also have served its policy for a while, so wavering
loads move no worker. Called by `scheduler/decisions/decide.py`.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from seamlessflow.scheduler.decisions.strategies.wanted import Wanted
from seamlessflow.scheduler.settings import SchedulerSettings, milliseconds
from seamlessflow.scheduler.state.fleet import Fleet, turns_of
from seamlessflow.scheduler.state.state import State
from seamlessflow.scheduler.state.workers import Worker, Workers

HYSTERESIS = 0.25
"""Difference in workers that a move between two policies needs, beyond the worker that moves."""


@dataclass(frozen=True, slots=True)
class Allotment:
    """Each policy's workers, by name; workers for another run's policy are left out."""

    workers: Mapping[str, frozenset[str]]
    balance: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """Figures that decided about each policy's shared workers."""

    def explained(
        self, wanted: Sequence[Wanted], policy: str, workers: Workers
    ) -> Sequence[Wanted]:
        """Return the wanted roles; shared workers new to the policy get the balance as reason."""
        coming = {
            name
            for name in self.workers[policy]
            if workers[name].shared and workers[name].policy != policy
        }
        if not coming:
            return wanted
        figures = self.balance[policy]
        of_policy = figures["queued_turns"]
        of_all = figures["all_queued_turns"]
        reason = f"serves {policy}, which has {of_policy:.0f} of {of_all:.0f} queued turns"
        return [
            want._replace(reason=reason, figures=figures) if want.worker in coming else want
            for want in wanted
        ]


def allotted(state: State, fleet: Fleet, settings: SchedulerSettings, now_ms: int) -> Allotment:
    """Return each policy's workers."""
    shared = {name for name, worker in state.workers.items() if worker.shared}
    served = {name: _policy_of(name, fleet) for name in state.workers.keys() - shared}
    balance: Mapping[str, Mapping[str, float]] = {}
    if shared:
        queued = _queued(state, fleet)
        settled_ms = now_ms - milliseconds(settings.scheduler.balance_s)
        served |= _shares(state, queued, settled_ms, served, shared)
        balance = _balance(state, queued, served)
    return Allotment(
        {
            policy: frozenset(name for name, its_policy in served.items() if its_policy == policy)
            for policy in state.served
        },
        balance,
    )


def balanced(
    policies: Sequence[str],
    present: Mapping[str, str],
    fixed: Mapping[str, int],
    queued: Mapping[str, float],
    movable: Collection[str],
) -> dict[str, str]:
    """Return each shared worker's policy.

    `present`: each shared worker's policy now, empty for a new worker. `fixed`: rollout workers
    that belong to each policy alone. `queued`: turns that wait or run. `movable`: workers that may
    move.
    """
    chosen = {name: policy for name, policy in present.items() if policy in policies}
    counts = Counter({policy: fixed.get(policy, 0) for policy in policies})
    counts.update(chosen.values())
    wanted = _proportional(policies, len(present) + sum(fixed.values()), queued)
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


def _proportional(
    policies: Sequence[str], workers: int, queued: Mapping[str, float]
) -> Mapping[str, float]:
    """Return how many workers each policy should have, in proportion to its turns."""
    total = sum(queued.get(policy, 0.0) for policy in policies)
    if total <= 0:
        return {policy: workers / len(policies) for policy in policies}
    return {policy: workers * queued.get(policy, 0.0) / total for policy in policies}


def _shares(
    state: State,
    queued: Mapping[str, float],
    settled_ms: int,
    served: Mapping[str, str],
    shared: set[str],
) -> Mapping[str, str]:
    return balanced(
        state.served,
        {name: state.workers[name].policy for name in shared},
        _rollers(state, served),
        queued,
        [name for name in shared if _settled(state.workers[name], settled_ms)],
    )


def _balance(
    state: State, queued: Mapping[str, float], served: Mapping[str, str]
) -> Mapping[str, Mapping[str, float]]:
    rollers = _rollers(state, served)
    due = _proportional(state.served, rollers.total(), queued)
    total = sum(queued.get(policy, 0.0) for policy in state.served)
    return {
        policy: {
            "queued_turns": queued.get(policy, 0.0),
            "all_queued_turns": total,
            "workers": rollers[policy],
            "proportional_workers": due[policy],
        }
        for policy in state.served
    }


def _rollers(state: State, served: Mapping[str, str]) -> Counter[str]:
    """Return how many workers can roll out, by the policy that they serve."""
    return Counter(
        policy for name, policy in served.items() if "rollout" in state.workers[name].tags
    )


def _queued(state: State, fleet: Fleet) -> Mapping[str, float]:
    """Return the mean turn count for each policy, without turns on workers that are gone."""
    turns = dict(fleet.queued)
    for (name, process), latest in fleet.heartbeats.items():
        if process == "rollout" and name not in state.workers:
            heard = latest.heartbeat
            turns[heard.policy] = max(0.0, turns[heard.policy] - turns_of(heard))
    return turns


def _settled(worker: Worker, since_ms: int) -> bool:
    """Return True if the worker has had its role at least since that time."""
    assignment = worker.assignment
    return (
        assignment is not None
        and assignment.acquired_ms is not None
        and assignment.acquired_ms <= since_ms
    )


def _policy_of(worker: str, fleet: Fleet) -> str:
    for process in ("train", "rollout"):
        latest = fleet.heartbeats.get((worker, process))
        if latest is not None:
            return latest.heartbeat.policy
    return ""


def _most_lacking(
    policies: Sequence[str], wanted: Mapping[str, float], counts: Mapping[str, int]
) -> str:
    # A policy without any worker comes first: its turns stand still, and no worker reports them.
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
