"""Which workers serve rollouts and what the policies are: a fold over `control` and `fleet`."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from consumers.trajectories.sessions.message_keys import Strictness
from schemas import records as r
from schemas.records import PolicyWeights, Record

HEARTBEAT_VALID_MS = 10_000
"""A heartbeat that is older says nothing of the present."""


@dataclass(slots=True)
class RoutableWorker:
    """A worker that turns may be given to."""

    worker: str
    incarnation: str
    slot: int
    version: int | None
    policy: str = ""
    """Policy it serves."""
    load: int = 0
    """Turns this manager gave to it that are not over."""


@dataclass(frozen=True, slots=True)
class Departure:
    """Turns given to `worker` so far will not be finished there.

    Not `at_once`: the worker hands them back itself, and only what it never read has to be taken
    from it a moment later.
    """

    worker: str
    at_once: bool
    incarnation: str | None = None
    """Only turns given to this one; None: to any."""


@dataclass(slots=True)
class RolloutFleet:
    """Routable workers and known policies."""

    workers: dict[str, RoutableWorker] = field(default_factory=dict)
    policies: dict[str, PolicyWeights] = field(default_factory=dict)
    versions: dict[str, int] = field(default_factory=dict)
    assignments: dict[str, int] = field(default_factory=dict)
    """Newest assignment heard of, by worker."""
    unconfirmed: dict[str, int] = field(default_factory=dict)
    """When workers were learnt of from a heartbeat that may be their last: their end may have been
    told before this manager listened."""
    epoch: int = -1
    arrivals: int = 0
    """Grows whenever somebody may take turns that nobody could take before."""

    def apply(self, record: Record, now_ms: int) -> Departure | None:
        """Takes in one record; says if it means that a worker's turns have to go elsewhere.

        Decisions of an older scheduler than one already heard of are ignored.
        """
        match record:
            case r.WorkerHeartbeat(process="rollout", role="rollout"):
                return self._apply_heartbeat(record, now_ms)
            case r.SchedulerClaimed():
                self.epoch = max(self.epoch, record.epoch)
            case r.RoleAcquired(role="rollout") if record.slot is not None:
                self.workers[record.worker] = RoutableWorker(
                    record.worker, record.incarnation, record.slot, record.version, record.policy
                )
                self.unconfirmed.pop(record.worker, None)
                self.arrivals += 1
                return Departure(record.worker, at_once=True)
            case r.RoleAssigned() if record.epoch >= self.epoch:
                self.assignments[record.worker] = record.assignment
                if record.role != "rollout":
                    self.workers.pop(record.worker, None)
            case r.RoleReleased(role="rollout"):
                self.workers.pop(record.worker, None)
                return Departure(record.worker, at_once=False)
            case r.WorkerLost(process="rollout") if record.epoch >= self.epoch:
                self._apply_loss(record)
                return Departure(record.worker, True, record.incarnation)
            case r.WeightsLoaded() if record.worker in self.workers:
                self.workers[record.worker].version = record.version
                self.arrivals += 1
            case r.WeightsPublished():
                self.versions[record.policy] = record.version
            case PolicyWeights():
                self.policies[record.policy] = record
                known = self.versions.get(record.policy, -1)
                self.versions[record.policy] = max(record.version, known)
        return None

    def expire(self, now_ms: int) -> list[Departure]:
        """Takes out workers that one heartbeat told of and none since."""
        silent = [
            worker
            for worker, learnt_ms in self.unconfirmed.items()
            if now_ms - learnt_ms >= HEARTBEAT_VALID_MS
        ]
        for worker in silent:
            del self.unconfirmed[worker]
        gone = [self.workers.pop(worker) for worker in silent if worker in self.workers]
        return [Departure(one.worker, True, one.incarnation) for one in gone]

    def choose(
        self, policy: str, affinity: str | None, pinned_version: int | None
    ) -> RoutableWorker | None:
        """The worker for a turn: the one that has its prefix unless it is much busier."""
        able = [
            worker
            for worker in self.workers.values()
            if worker.policy in (policy, "") and pinned_version in (None, worker.version)
        ]
        if not able:
            return None
        least = min(able, key=lambda worker: (worker.load, worker.worker))
        near = next((worker for worker in able if worker.worker == affinity), least)
        return near if near.load <= 2 * least.load + 4 else least

    def strictness(self, policy: str) -> Strictness:
        """How histories of the policy are compared."""
        known = self.policies.get(policy)
        return known.strictness if known else "arguments"  # type: ignore[return-value]

    def add_turn(self, worker: str) -> None:
        """A turn is given to the worker."""
        if worker in self.workers:
            self.workers[worker].load += 1

    def remove_turn(self, worker: str | None, incarnation: str) -> None:
        """A turn that was given to the worker is over."""
        known = self.workers.get(worker or "")
        if known is not None and known.incarnation == incarnation and known.load > 0:
            known.load -= 1

    def routable(self, worker: str | None, incarnation: str) -> bool:
        """Whether output may still be expected of it."""
        known = self.workers.get(worker or "")
        return known is not None and known.incarnation == incarnation

    def recount(self, turns: Iterable[tuple[str, str]]) -> None:
        """Counts the load anew from (worker, incarnation) of the turns under way."""
        for worker in self.workers.values():
            worker.load = 0
        for name, incarnation in turns:
            if self.routable(name, incarnation):
                self.workers[name].load += 1

    def _apply_heartbeat(self, record: r.WorkerHeartbeat, now_ms: int) -> Departure | None:
        """A heartbeat tells of a worker that took its role before this manager listened."""
        known, learnt_ms = self.workers.get(record.worker), self.unconfirmed.get(record.worker)
        if known is not None and learnt_ms is None:
            return None  # it is told when that one leaves
        if known is not None and record.incarnation == known.incarnation:
            if learnt_ms is not None and record.at_ms > learnt_ms:
                del self.unconfirmed[record.worker]
            return None
        fresh = now_ms - record.at_ms < HEARTBEAT_VALID_MS
        newest = record.assignment >= self.assignments.get(record.worker, -1)
        serves = record.state in ("ready", "paused")
        if not (fresh and newest and serves) or record.slot is None:
            return None
        self.workers[record.worker] = RoutableWorker(
            record.worker, record.incarnation, record.slot, record.version, record.policy
        )
        self.unconfirmed[record.worker] = now_ms
        self.arrivals += 1
        return None if known is None else Departure(record.worker, True, known.incarnation)

    def _apply_loss(self, record: r.WorkerLost) -> None:
        known = self.workers.get(record.worker)
        if known is not None and known.incarnation == record.incarnation:
            del self.workers[record.worker]
