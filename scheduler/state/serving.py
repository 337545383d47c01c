"""Serving: which rollout processes have served, and when engines served. A fold over `control`.

A process that sleeps while its worker trains is not lost: it serves again by itself. Until then the
agents' time stands still, since no engine answers them (`served_ms`, `after`). With several
policies an agent may call each, so its time stands still while any policy has no engine.

If all processes were lost, for example when a run is resumed, none is left. Until one has taken its
role again, no task is issued and no deadline runs. Called by `scheduler/state/state.py`; used by
`pacing.py`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingProcesses:
    """Rollout processes that had their role and are not lost."""

    incarnations: Mapping[str, str] = field(default_factory=dict)
    """These processes' incarnations, by worker."""
    since_ms: int = 0
    """When the first of them took its role, after a time with none."""
    awake: Mapping[str, str] = field(default_factory=dict)
    """Policy by worker, for each process that holds its role now."""
    stands_ms: int | None = None
    """Time since when a policy has no engine; None: each policy has one, or never had one."""
    stands: tuple[tuple[int, int], ...] = ()
    """Begin and end of earlier times without an engine, oldest first; see `without`."""

    def served_ms(self, since_ms: int, now_ms: int) -> int:
        """Return how long engines served between the two times; only this time counts."""
        until_ms = now_ms if self.stands_ms is None else max(since_ms, min(now_ms, self.stands_ms))
        stood = (max(0, min(end, until_ms) - max(begin, since_ms)) for begin, end in self.stands)
        return max(0, until_ms - since_ms) - sum(stood)

    def after(self, since_ms: int, served_ms: int) -> int:
        """Return when `served_ms` have counted, or will have if engines go on serving."""
        at_ms = since_ms + served_ms
        for begin, end in self.stands:
            if end > since_ms and begin < at_ms:
                at_ms += end - max(begin, since_ms)
        return at_ms

    def without(self, before_ms: int) -> "ServingProcesses":
        """Return this without times that ended by `before_ms`: no earlier time counts."""
        kept = tuple(stand for stand in self.stands if stand[1] > before_ms)
        return self if len(kept) == len(self.stands) else replace(self, stands=kept)


ALWAYS = ServingProcesses()
"""Processes that serve at any time."""


def apply(
    serving: ServingProcesses, record: Record, policies: Sequence[str] = ("",)
) -> ServingProcesses:
    """Return the serving processes after a record. `policies`: the run's policies."""
    match record:
        case r.RoleAcquired(role="rollout"):
            return _awake(_taken(serving, record), record, policies)
        case r.RoleReleased(role="rollout", worker=worker) if worker in serving.awake:
            return _left(serving, worker, record.at_ms, policies)
        case r.WorkerLost(process="rollout", worker=worker, incarnation=incarnation):
            if serving.incarnations.get(worker) != incarnation:
                return serving
            serving = replace(serving, incarnations=_other_than(serving.incarnations, worker))
            return _left(serving, worker, record.at_ms, policies)
    return serving


def _taken(serving: ServingProcesses, record: r.RoleAcquired) -> ServingProcesses:
    worker = record.worker
    incarnation = record.incarnation
    if serving.incarnations.get(worker) == incarnation:
        return serving
    since_ms = serving.since_ms if serving.incarnations else record.at_ms
    incarnations = {**serving.incarnations, worker: incarnation}
    return replace(serving, incarnations=incarnations, since_ms=since_ms)


def _awake(
    serving: ServingProcesses, record: r.RoleAcquired, policies: Sequence[str]
) -> ServingProcesses:
    if serving.awake.get(record.worker) == record.policy:
        return serving
    awake = {**serving.awake, record.worker: record.policy}
    return _standing(replace(serving, awake=awake), record.at_ms, policies)


def _left(
    serving: ServingProcesses, worker: str, at_ms: int, policies: Sequence[str]
) -> ServingProcesses:
    return _standing(replace(serving, awake=_other_than(serving.awake, worker)), at_ms, policies)


def _standing(serving: ServingProcesses, at_ms: int, policies: Sequence[str]) -> ServingProcesses:
    """Return this after noting that a policy has no engine, or that all have one again."""
    served = set(serving.awake.values())
    stands = not served if "" in served or len(policies) < 2 else not served.issuperset(policies)
    began_ms = serving.stands_ms
    if stands == (began_ms is not None):
        return serving
    if began_ms is None:
        return replace(serving, stands_ms=at_ms)
    stood = ((began_ms, at_ms),) if at_ms > began_ms else ()
    return replace(serving, stands_ms=None, stands=(*serving.stands, *stood))


def _other_than(values: Mapping[str, str], worker: str) -> Mapping[str, str]:
    return {name: value for name, value in values.items() if name != worker}
