"""The workers of each policy of a run. Pure.

A worker belongs to the policy that its processes name in their heartbeats, and one with the tag
`shared` to the policy that the balance gives it. Strategies then decide for each policy on its own
workers. Called by `scheduler/decisions/decide.py`.
"""

from collections import Counter
from collections.abc import Mapping

from scheduler.decisions.sharing.balancer import balanced
from scheduler.settings import SchedulerSettings, milliseconds
from scheduler.state.fleet import Fleet, turns_of
from scheduler.state.state import State
from scheduler.state.workers import Worker


def allotted(
    state: State, fleet: Fleet, settings: SchedulerSettings, now_ms: int
) -> Mapping[str, frozenset[str]]:
    """Return the names of the workers of each policy; one of another run's policy has no place."""
    shared = {name for name, worker in state.workers.items() if worker.shared}
    served = {name: _policy_of(name, fleet) for name in state.workers.keys() - shared}
    if shared:
        served |= _shares(state, fleet, settings, now_ms, served, shared)
    return {
        policy: frozenset(name for name, of in served.items() if of == policy)
        for policy in state.policies
    }


def _shares(
    state: State,
    fleet: Fleet,
    settings: SchedulerSettings,
    now_ms: int,
    served: Mapping[str, str],
    shared: set[str],
) -> Mapping[str, str]:
    rolling = [name for name in served if "rollout" in state.workers[name].tags]
    dwell_ms = milliseconds(settings.scheduler.balance_s)
    return balanced(
        state.policies,
        {name: state.workers[name].policy for name in shared},
        Counter(served[name] for name in rolling),
        _queued(state, fleet),
        [name for name in shared if _settled(state.workers[name], now_ms - dwell_ms)],
    )


def _queued(state: State, fleet: Fleet) -> Mapping[str, float]:
    """Return the mean of the turns of each policy, without those of workers that are gone."""
    found = dict(fleet.queued)
    for (name, process), latest in fleet.heartbeats.items():
        if process == "rollout" and name not in state.workers:
            heard = latest.heartbeat
            found[heard.policy] = max(0.0, found[heard.policy] - turns_of(heard))
    return found


def _settled(worker: Worker, since_ms: int) -> bool:
    """Return True if the worker has its role, since that time or longer."""
    given = worker.assignment
    return given is not None and given.acquired_ms is not None and given.acquired_ms <= since_ms


def _policy_of(worker: str, fleet: Fleet) -> str:
    for process in ("train", "rollout"):
        known = fleet.heartbeats.get((worker, process))
        if known is not None:
            return known.heartbeat.policy
    return ""
