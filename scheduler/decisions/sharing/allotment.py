"""The workers of each policy of a run. Pure.

A worker belongs to the policy that its processes name in their heartbeats. Strategies then decide
for each policy on its own workers. Called by `scheduler/decisions/decide.py`.
"""

from collections.abc import Mapping

from scheduler.state.fleet import Fleet
from scheduler.state.state import State


def allotted(state: State, fleet: Fleet) -> Mapping[str, frozenset[str]]:
    """Return the names of the workers of each policy; one of another run's policy has no place."""
    served = {name: _policy_of(name, fleet) for name in state.workers}
    return {
        policy: frozenset(name for name, of in served.items() if of == policy)
        for policy in state.policies
    }


def _policy_of(worker: str, fleet: Fleet) -> str:
    for process in ("train", "rollout"):
        known = fleet.heartbeats.get((worker, process))
        if known is not None:
            return known.heartbeat.policy
    return ""
