"""The rollout processes that have served, and since when there are any. A pure fold of `control`.

A process that sleeps while its worker trains still counts: it serves again by itself. None is left
where all were lost, such as when a run is resumed: until one has taken its role again, no task is
given out and no deadline runs. Called by `scheduler/state/state.py`; used by `pacing.py`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from schemas import records as r
from schemas.records import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingProcesses:
    """Rollout processes that had their role and are not lost."""

    incarnations: Mapping[str, str] = field(default_factory=dict)
    """By worker."""
    since_ms: int = 0
    """Time at which the first of them took its role, after none was there."""


def apply(known: ServingProcesses, record: Record) -> ServingProcesses:
    """Return what serves after a record: the same if nothing changes."""
    match record:
        case r.RoleAcquired(role="rollout", worker=worker, incarnation=incarnation):
            if known.incarnations.get(worker) == incarnation:
                return known
            since_ms = known.since_ms if known.incarnations else record.at_ms
            incarnations = {**known.incarnations, worker: incarnation}
            return ServingProcesses(incarnations=incarnations, since_ms=since_ms)
        case r.WorkerLost(process="rollout", worker=worker, incarnation=incarnation):
            if known.incarnations.get(worker) != incarnation:
                return known
            left = {name: of for name, of in known.incarnations.items() if name != worker}
            return ServingProcesses(incarnations=left, since_ms=known.since_ms)
    return known
