"""The fleet: workers that serve rollouts, and known policies; a fold over `control` and `fleet`."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from seamlessflow.consumers.trajectories.sessions.message_keys import Strictness
from seamlessflow.infra.worker.tags import NO_WISHES, Wishes, wished
from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import PolicyWeights, Record

HEARTBEAT_VALID_MS = 10_000
"""An older heartbeat proves nothing about the worker now."""


@dataclass(frozen=True, slots=True)
class Description:
    """Facts about a worker from its newest heartbeat."""

    tags: frozenset[str] = frozenset()
    capacity: int = 0
    """Turns that it samples at once, or 0 if unknown."""
    at_ms: int = 0
    incarnation: str = ""


UNKNOWN = Description()


@dataclass(slots=True)
class RoutableWorker:
    """A worker that may get turns, with the slot to send them to."""

    worker: str
    incarnation: str
    slot: int
    version: int | None
    policy: str = ""
    """The policy that it serves, or empty for any policy."""
    load: int = 0
    """Running turns that this manager dispatched to it."""
    description: Description = UNKNOWN

    @property
    def tags(self) -> frozenset[str]:
        """Its tags, as far as they are known."""
        return self.description.tags

    @property
    def free(self) -> bool:
        """True if it has a place for a further turn."""
        return self.description.capacity == 0 or self.load < self.description.capacity


@dataclass(frozen=True, slots=True)
class Needs:
    """Conditions that a turn sets for its worker."""

    policy: str
    pinned_version: int | None = None
    min_version: int | None = None
    """A worker with an older version loads a newer one first, and the turn waits for it."""
    wishes: Wishes = NO_WISHES


@dataclass(frozen=True, slots=True)
class Departure:
    """A worker that will not finish the turns dispatched to it so far.

    `at_once`: take its turns now. Otherwise the worker hands them back itself. Only turns that it
    never read must be taken from it a moment later.
    """

    worker: str
    at_once: bool
    incarnation: str | None = None
    """Only this incarnation's turns, or None for all the worker's turns."""


@dataclass(slots=True)
class RolloutFleet:
    """Routable workers and known policies."""

    workers: dict[str, RoutableWorker] = field(default_factory=dict)
    policies: dict[str, PolicyWeights] = field(default_factory=dict)
    versions: dict[str, int] = field(default_factory=dict)
    assignments: dict[str, int] = field(default_factory=dict)
    """Newest assignment read, by worker."""
    unconfirmed: dict[str, int] = field(default_factory=dict)
    """Workers known from only one heartbeat, with the time it was read.

    That heartbeat may be their last: this manager does not read `control` from before its start.
    """
    epoch: int = -1
    arrivals: int = 0
    """Grows whenever a worker may have become able to take a waiting turn."""
    beginners: int = 0
    """Grows with each worker that begins to serve, without any turn."""
    described: dict[str, Description] = field(default_factory=dict)
    """Descriptions of workers with a rollout process, whatever their role."""

    def apply(self, record: Record, now_ms: int) -> Departure | None:
        """Apply one record. Return the departure that follows from it, or None.

        Records from a scheduler with an older epoch than one already read are ignored.
        """
        match record:
            case r.WorkerHeartbeat(process="rollout"):
                self._describe(record)
                return self._apply_heartbeat(record, now_ms) if record.role == "rollout" else None
            case r.SchedulerClaimed():
                self.epoch = max(self.epoch, record.epoch)
            case r.RoleAcquired(role="rollout") if record.slot is not None:
                self._add(record, record.slot)
                self.unconfirmed.pop(record.worker, None)
                self.arrivals += 1
                self.beginners += 1
                # It has none of the turns from its earlier incarnations or roles.
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
                # `fleet` and `control` are not ordered: the newer version may have been read first.
                self.policies[record.policy] = record
                before = self.versions.get(record.policy, -1)
                self.versions[record.policy] = max(record.version, before)
        return None

    def expire(self, now_ms: int) -> list[Departure]:
        """Remove workers whose only heartbeat was read 10 s ago or earlier; return departures."""
        silent = [
            worker
            for worker, read_ms in self.unconfirmed.items()
            if now_ms - read_ms >= HEARTBEAT_VALID_MS
        ]
        for worker in silent:
            del self.unconfirmed[worker]
        gone = [self.workers.pop(worker) for worker in silent if worker in self.workers]
        return [Departure(member.worker, True, member.incarnation) for member in gone]

    def choose(
        self, needs: Needs, affinity: str | None, avoided: str | None = None
    ) -> RoutableWorker | None:
        """Return the worker for a turn, or None if no worker can take it.

        A worker must serve the policy (and the version, if pinned) and have the required tags.

        Prefers workers that have the preferred tags and room for the turn. Among them it prefers
        workers that need not load weights for it. It then prefers `affinity`, which has the turn's
        prefix in its cache. A worker that is much busier than the least loaded one gets neither
        preference. `avoided` gets the turn only if no other worker can take it.
        """
        able = [
            worker
            for worker in self.workers.values()
            if worker.policy in (needs.policy, "")
            and needs.pinned_version in (None, worker.version)
        ]
        able = [worker for worker in able if worker.tags >= needs.wishes.requires]
        able = [worker for worker in able if worker.worker != avoided] or able
        able = list(wished(able, needs.wishes))
        if not able:
            return None
        least = _least(able)
        current = [worker for worker in able if _is_current(worker, needs.min_version)]
        if current and _is_as_free(_least(current), least):
            able = current
            least = _least(current)
        cached = next((worker for worker in able if worker.worker == affinity), least)
        return cached if _is_as_free(cached, least) else least

    def strictness(self, policy: str) -> Strictness:
        """Return how the policy's histories are compared, or `arguments` for an unknown policy."""
        weights = self.policies.get(policy)
        return weights.strictness if weights else "arguments"  # type: ignore[return-value]

    def add_turn(self, worker: str) -> None:
        """Count a turn that is dispatched to the worker."""
        if worker in self.workers:
            self.workers[worker].load += 1

    def remove_turn(self, worker: str | None, incarnation: str) -> None:
        """Stop counting this incarnation's turn; no effect if the incarnation no longer serves."""
        present = self.workers.get(worker or "")
        if present is not None and present.incarnation == incarnation and present.load > 0:
            present.load -= 1

    def routable(self, worker: str | None, incarnation: str) -> bool:
        """Return True if this incarnation of the worker serves rollouts."""
        present = self.workers.get(worker or "")
        return present is not None and present.incarnation == incarnation

    def recount(self, turns: Iterable[tuple[str, str]]) -> None:
        """Count all loads anew from the running turns' (worker, incarnation) pairs."""
        for worker in self.workers.values():
            worker.load = 0
        for name, incarnation in turns:
            if self.routable(name, incarnation):
                self.workers[name].load += 1

    def lacks(self, wishes: Wishes, now_ms: int) -> bool:
        """Return True if no worker with a recent heartbeat has the required tags."""
        if not wishes.requires:
            return False
        heard = [
            description
            for description in self.described.values()
            if now_ms - description.at_ms < HEARTBEAT_VALID_MS
        ]
        # Without any worker, for example at a start, nothing is known about workers to come.
        return bool(heard) and not any(description.tags >= wishes.requires for description in heard)

    def _add(self, record: r.RoleAcquired | r.WorkerHeartbeat, slot: int) -> None:
        self.workers[record.worker] = RoutableWorker(
            record.worker,
            record.incarnation,
            slot,
            record.version,
            record.policy,
            description=self.described.get(record.worker, UNKNOWN),
        )

    def _describe(self, record: r.WorkerHeartbeat) -> None:
        before = self.described.get(record.worker, UNKNOWN)
        if record.at_ms < before.at_ms:
            return
        tags = frozenset(record.tags)
        incarnation = record.incarnation
        now = Description(tags, record.capacity, record.at_ms, incarnation)
        self.described[record.worker] = now
        if record.worker in self.workers:
            self.workers[record.worker].description = now
        self.arrivals += now.tags != before.tags

    def _apply_heartbeat(self, record: r.WorkerHeartbeat, now_ms: int) -> Departure | None:
        """Add a worker that took its role before this manager began to read `control`."""
        present = self.workers.get(record.worker)
        read_ms = self.unconfirmed.get(record.worker)
        if present is not None and read_ms is None:
            return None  # known from `control`, which will also have its departure
        if present is not None and record.incarnation == present.incarnation:
            if read_ms is not None and record.at_ms > read_ms:
                del self.unconfirmed[record.worker]
            return None
        fresh = now_ms - record.at_ms < HEARTBEAT_VALID_MS
        newest = record.assignment >= self.assignments.get(record.worker, -1)
        serves = record.state in ("ready", "paused")
        if not (fresh and newest and serves) or record.slot is None:
            return None
        self._add(record, record.slot)
        self.unconfirmed[record.worker] = now_ms
        self.arrivals += 1
        return None if present is None else Departure(record.worker, True, present.incarnation)

    def _apply_loss(self, record: r.WorkerLost) -> None:
        # The next incarnation's heartbeat may arrive before this one's loss.
        if self.described.get(record.worker, UNKNOWN).incarnation == record.incarnation:
            del self.described[record.worker]
        present = self.workers.get(record.worker)
        if present is not None and present.incarnation == record.incarnation:
            del self.workers[record.worker]


def _least(workers: Iterable[RoutableWorker]) -> RoutableWorker:
    return min(workers, key=lambda worker: (worker.load, worker.worker))


def _is_as_free(worker: RoutableWorker, least: RoutableWorker) -> bool:
    """Return True if a worker is not much busier than the least loaded one."""
    # The margin of 4 keeps sessions on their workers while there are few turns at all.
    return worker.load <= 2 * least.load + 4


def _is_current(worker: RoutableWorker, min_version: int | None) -> bool:
    return min_version is None or worker.version is None or worker.version >= min_version
