"""A rollout process's decisions: when it takes its role, gives it up and loads weights. Pure.

It folds the records on `control` and `fleet` that concern one worker. `next_move` returns what to
do now, one move at a time. The caller calls `begin` and then reports the outcome (`acquired`,
`loaded_weights`, `released`, `reject`). It obeys only a newer (epoch, assignment), and no scheduler
older than the newest one known. It takes its role only after the same worker's training process has
given up its own.
"""

from dataclasses import dataclass, field

from seamlessflow.infra.weights.versions import PublishedWeights
from seamlessflow.infra.worker.roles import WorkerRoles
from seamlessflow.producers.rollout.roles.moves import (
    Acquire,
    Load,
    Move,
    Preload,
    Rejoin,
    Release,
)
from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import PolicyWeights, Record

NO_ASSIGNMENT = -1
TRAINER_SILENT_MS = 15_000
"""A training process whose last heartbeat is older than this is not waited for."""


@dataclass(slots=True)
class RolloutRoles(WorkerRoles):
    """The state of a worker's rollout process."""

    policy: str = field(kw_only=True)
    loads_asleep: bool = field(kw_only=True)
    """True if the engine loads weights also while it sleeps."""
    shared: bool = field(default=False, kw_only=True)
    """True if assignments say which policy it serves; `policy` is then the one served now."""
    others: dict[str, tuple[PublishedWeights | None, PolicyWeights | None]] = field(
        default_factory=dict
    )
    """For a shared worker: the newest weights of the policies that it does not serve."""
    awake: bool = False
    """True while the engine has its memory."""
    loaded: int | None = None
    """Version in the engine; None until there is an engine."""
    verified: PublishedWeights | None = None
    """Weights that were verified ahead, for an engine that loads only while awake."""
    unusable: PublishedWeights | None = None
    """Weights that could not be read ahead; the move into the role tries again."""
    published: PublishedWeights | None = None
    policy_weights: PolicyWeights | None = None
    under_way: Move | None = None
    """The move that is being made."""
    joined: bool = False
    """True once `fleet` was read up to this incarnation's first heartbeat."""
    trainer: tuple[int, bool] = (-1, False)
    """Time of the training process's last record, and whether it held its role then."""

    def apply(self, record: Record) -> None:
        """Fold in one record; each topic's records come in order."""
        match record:
            case r.SchedulerClaimed() | r.SchedulerSnapshot() | r.WorkerAssignment():
                self.epoch = max(self.epoch, record.epoch)
            case r.RoleAssigned() if record.worker == self.worker:
                self._assign(record)
            case r.WorkerLost() if record.worker == self.worker:
                self._lose(record)
            case r.WeightsPublished() if record.policy == self.policy:
                self.published = PublishedWeights.from_record(record)
            case PolicyWeights() if record.policy == self.policy:
                self._apply_policy(record)
            case r.WeightsPublished() | PolicyWeights() if self.shared:
                self._apply_other(record)
            case _:
                self._apply_process(record)

    @property
    def busy(self) -> bool:
        """True while a move is under way."""
        return self.under_way is not None

    def next_move(self) -> Move | None:
        """Return what to do now, or None while a move is under way or nothing is to be done."""
        if self.busy or not self.joined:
            return None
        if self.awake and (self.lost or self.wanted is None):
            return Release(self.assignment)
        if self._other_policy:
            if self.awake:
                # Not the new assignment's number: the worker has yet to take that one.
                return Release(self.held.assignment if self.held else NO_ASSIGNMENT)
            self._turn_to_other()
        if self.lost:
            return Rejoin()
        return self._towards(self.wanted) or self._ahead()

    @property
    def _other_policy(self) -> str:
        """The policy that a shared worker is to serve next; empty if it stays the same."""
        wanted = self.wanted.policy if self.shared and self.wanted is not None else ""
        return wanted if wanted != self.policy else ""

    def _turn_to_other(self) -> None:
        policy = self._other_policy
        self.others[self.policy] = self.published, self.policy_weights
        self.published, self.policy_weights = self.others.pop(policy, (None, None))
        # Equal versions of two policies are different weights.
        self.policy = policy
        self.loaded = None
        self.unusable = None

    def _apply_other(self, record: r.WeightsPublished | PolicyWeights) -> None:
        published, weights = self.others.get(record.policy, (None, None))
        if isinstance(record, PolicyWeights):
            weights = record
        if published is None or record.version > published.version:
            published = PublishedWeights.from_record(record)
        self.others[record.policy] = published, weights

    def begin(self, move: Move) -> None:
        """Note that the move is under way."""
        self.under_way = move

    def leave(self) -> None:
        """Give the role up and take no other: the process ends."""
        self.leaving = True
        self.wanted = None

    def released(self) -> None:
        """Note that the engine sleeps and no turn is left."""
        self.under_way = None
        self.awake = False
        self.held = None

    def acquired(self, move: Acquire) -> bool:
        """Note that the engine serves; return True if the role is still wanted and so is held."""
        self.under_way = None
        self.awake = True
        self.loaded = move.weights.version
        wanted = self.wanted
        if wanted is None or wanted.assignment != move.assignment:
            return False
        self.held = wanted
        return True

    def loaded_weights(self, move: Load | Preload) -> None:
        """Note that the engine has other weights, or may have them if it cannot load asleep."""
        self.under_way = None
        if isinstance(move, Preload) and not self.loads_asleep:
            self.verified = move.weights
        else:
            self.loaded = move.weights.version

    def reject(self, move: Acquire | Load | Preload) -> bool:
        """Note that a move's weights are unusable; return True if the process can go on.

        It can if other weights were published meanwhile, or none are needed yet.
        """
        self.under_way = None
        self.unusable = move.weights
        return isinstance(move, Preload) or self.published != move.weights

    def renew(self, incarnation: str) -> None:
        """Begin the next incarnation in the same process."""
        self.incarnation = incarnation
        self.lost = False
        self.joined = False

    def _towards(self, wanted: r.RoleAssigned | None) -> Move | None:
        if wanted is None or wanted.slot is None:
            return None
        # The training process of this worker may still hold the device.
        if self.policy_weights is None or self.published is None or self.trainer[1]:
            return None
        if self.held is not None and self.loaded != self.published.version:
            return Load(self.published, self.policy_weights)
        if self.held is None or self.held.assignment != wanted.assignment:
            return Acquire(wanted.assignment, wanted.slot, self.published, self.policy_weights)
        return None

    def _ahead(self) -> Preload | None:
        """Return the move that gives a sleeping engine the newest weights, if it lacks them."""
        newest = self.published
        policy = self.policy_weights
        if newest is None or policy is None or self.leaving:
            return None
        if self.awake or self.loaded in (None, newest.version):
            return None
        if newest in (self.verified, self.unusable):
            return None
        return Preload(newest, policy)

    def _assign(self, record: r.RoleAssigned) -> None:
        if not self.is_newer(record):
            return
        self.obey(record)
        mine = record.role == "rollout" and record.incarnation == self.incarnation
        self.wanted = record if mine and not self.leaving else None

    def _lose(self, record: r.WorkerLost) -> None:
        if record.epoch < self.epoch:
            return
        self.epoch = record.epoch
        if record.process == "train":
            self._note_trainer(record.at_ms, False)
        elif record.incarnation == self.incarnation:
            self.lost = True
            self.wanted = None

    def _apply_policy(self, record: PolicyWeights) -> None:
        self.policy_weights = record
        if self.published is None or record.version > self.published.version:
            self.published = PublishedWeights.from_record(record)

    def _apply_process(self, record: Record) -> None:
        match record:
            case r.RoleAcquired(role="train") if record.worker == self.worker:
                self._note_trainer(record.at_ms, True)
            case r.RoleReleased(role="train") if record.worker == self.worker:
                self._note_trainer(record.at_ms, False)
            case r.WorkerHeartbeat(process="train") if record.worker == self.worker:
                self._note_trainer(record.at_ms, record.role == "train")
            case r.WorkerHeartbeat() if record.incarnation == self.incarnation:
                self._join(record.at_ms)

    def _join(self, at_ms: int) -> None:
        self.joined = True
        # `fleet` keeps the last heartbeat of a training process that was killed.
        if at_ms - self.trainer[0] > TRAINER_SILENT_MS:
            self.trainer = (at_ms, False)

    def _note_trainer(self, at_ms: int, holds: bool) -> None:
        if at_ms >= self.trainer[0]:  # `control` and `fleet` have no common order
            self.trainer = (at_ms, holds)


def concerns(record: Record, worker: str, policy: str | None) -> bool:
    """Return True if this worker's `RolloutRoles` folds the record. `policy` None: any policy."""
    match record:
        case r.SchedulerClaimed() | r.SchedulerSnapshot():
            return True
        case (
            r.RoleAssigned()
            | r.RoleAcquired()
            | r.RoleReleased()
            | r.WorkerLost()
            | r.WorkerAssignment()
            | r.WorkerHeartbeat()
        ):
            return record.worker == worker
        case r.WeightsPublished() | PolicyWeights():
            return policy in (None, record.policy)
    return False
