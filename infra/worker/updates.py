"""Order in which rollout workers load new weights: together, a few at a time, or when idle. Pure.

Each worker follows the rule for itself, only from `control`. Serving workers stand in a line: the
oldest version first, then in the order in which they acquired their role. A worker in front can
only load or leave. So all read the same line, however late they read it. Used by rollout processes
and the simulator.
"""

from dataclasses import dataclass, field
from typing import Literal

from pydantic import Field

from seamlessflow.infra.settings import Section
from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Record

UNKNOWN = -1


class UpdateSection(Section):
    """Weight updates on workers that roll out."""

    mode: Literal["together", "rolling", "idle"] = Field(
        "together",
        description="When a worker loads new weights. together: at once; rolling: at_most workers "
        "load at a time while the others serve; idle: when the worker has no turn, or a turn needs "
        "newer weights. A worker more than run.lag versions behind always loads at once",
    )
    at_most: int = Field(1, ge=1, description="rolling: workers that load at the same time")
    wait_s: float = Field(
        60,
        gt=0,
        description="rolling: if no worker finishes loading for this many seconds, as many more "
        "may load, because the loading ones may have died",
    )


@dataclass(slots=True)
class _Member:
    """A serving worker: its version, and its place among workers with the same version."""

    incarnation: str
    version: int
    place: int
    passed: bool = False
    """True if weights were published while this worker's version was unknown."""


@dataclass(slots=True)
class UpdateLine:
    """A policy's serving workers, in the order in which they load: a fold of `control`."""

    policy: str
    newest: int = UNKNOWN
    changes: int = 0
    """Grows with each change of the line."""
    members: dict[str, _Member] = field(default_factory=dict)
    _others: set[str] = field(default_factory=set)
    """Workers that have been seen and do not serve the policy."""
    _places: int = 0

    def apply(self, record: Record) -> None:
        """Fold one record from `control` in."""
        match record:
            case r.WeightsPublished(policy=self.policy):
                self._publish(record.version)
            case r.RoleAcquired(role="rollout"):
                self._serve(record)
            case r.WeightsLoaded(policy=self.policy):
                self._load(record)
            case r.RoleAssigned() if record.role != "rollout":
                self._leave(record.worker)
            case r.RoleReleased(role="rollout"):
                self._leave(record.worker)
            case r.WorkerLost(process="rollout"):
                member = self.members.get(record.worker)
                if member is not None and member.incarnation in ("", record.incarnation):
                    self._leave(record.worker)
            case r.WorkerUsage(process="rollout"):
                self._hear(record.worker)

    def ahead(self, worker: str) -> int:
        """Return how many workers load before this one."""
        mine = self.members.get(worker)
        key = (self.newest, self._places) if mine is None else (mine.version, mine.place)
        return sum(
            member.version < self.newest and (member.version, member.place) < key
            for name, member in self.members.items()
            if name != worker
        )

    def _publish(self, version: int) -> None:
        self.newest = version
        self.changes = self.changes + 1
        for name, member in list(self.members.items()):
            if member.version != UNKNOWN:
                continue
            if member.passed:  # since the previous weights: it serves another policy
                del self.members[name]
                self._others.add(name)
            member.passed = True

    def _serve(self, record: r.RoleAcquired) -> None:
        self._leave(record.worker)
        if record.policy not in (self.policy, ""):
            self._others.add(record.worker)
            return
        self._others.discard(record.worker)
        self._places += 1
        version = UNKNOWN if record.version is None else record.version
        self.members[record.worker] = _Member(record.incarnation, version, self._places)

    def _load(self, record: r.WeightsLoaded) -> None:
        member = self.members.setdefault(record.worker, _Member(record.incarnation, UNKNOWN, 0))
        member.version = record.version
        self._others.discard(record.worker)
        self.changes += 1

    def _leave(self, worker: str) -> None:
        if self.members.pop(worker, None) is not None:
            self.changes += 1

    def _hear(self, worker: str) -> None:
        """Count in a worker that took its role before this fold began."""
        if worker not in self.members and worker not in self._others:
            self.members[worker] = _Member("", UNKNOWN, 0)


@dataclass(slots=True)
class UpdateRule:
    """One worker's rule."""

    settings: UpdateSection
    lag: int
    line: UpdateLine
    _changes: int = UNKNOWN
    _since_ms: int = 0

    def may_load(
        self, worker: str, version: int, behind: int, idle: bool, needed: bool, now_ms: int
    ) -> bool:
        """Return True if a worker may load the weights of `version` now.

        `behind`: how many versions it lacks; `needed`: a turn waits for newer weights.
        """
        if self._changes != self.line.changes:
            self._changes = self.line.changes
            self._since_ms = now_ms
        if self.settings.mode == "together" or behind > self.lag:
            return True
        if self.settings.mode == "idle":
            return idle or needed
        waited = (now_ms - self._since_ms) // round(1000 * self.settings.wait_s)
        if version > self.line.newest:
            # `fleet` named it first: `control` will say which workers stand in the line by now.
            return waited > 0
        return self.line.ahead(worker) < self.settings.at_most * (1 + waited)


def concerns_line(record: Record) -> bool:
    """Return True for the records that an `UpdateLine` folds."""
    match record:
        case r.RoleAcquired() | r.RoleReleased():
            return record.role == "rollout"
        case r.WorkerLost() | r.WorkerUsage():
            return record.process == "rollout"
    return isinstance(record, r.WeightsPublished | r.WeightsLoaded | r.RoleAssigned)
