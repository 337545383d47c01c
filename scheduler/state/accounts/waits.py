"""Waits: the reasons why each worker waits, as parts of its time. Pure.

The intervals from `occupation.py`, divided by usage, show how long a worker waits. This module adds
the reasons, from the same records. Called by `scheduler/state/timeline.py`.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from seamlessflow.scheduler.state.accounts.device_time import ROLLOUT, TRAINING, WAITING, Interval
from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Record

TURNS, GROUPS, BATCH, GANG, ROLE, REPORT = "turns", "groups", "batch", "gang", "role", "report"
"""Reasons to wait.

In rollout, `turns`: groups are under way, but none of their turns is here. Agents and tools work,
or few long turns are left elsewhere. `groups`: no group is under way until a step's weights come.
In training, `batch`: no batch is ready. `gang`: a batch is ready, but other members still change
roles. Or a step runs, but others compute, or the trainer sends tokens or commits. `role`: the
worker has no role. `report`: it rolls out, but no usage for that time is on the log.
"""
_TRAIN = "train"


@dataclass
class Spells:
    """Stretches of time, one after the other, in which a condition holds."""

    starts: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    _before: list[int] = field(default_factory=list)
    """Total length of earlier spells, by spell number."""

    def begin(self, at_ms: int) -> None:
        """Begin a spell, unless one is under way."""
        if len(self.starts) == len(self.ends):
            self._before.append(self._until(self.ends[-1]) if self.ends else 0)
            self.starts.append(max(at_ms, self.ends[-1] if self.ends else at_ms))

    def end(self, at_ms: int) -> None:
        """End the current spell, if any."""
        if len(self.starts) > len(self.ends):
            self.ends.append(max(at_ms, self.starts[-1]))

    def within(self, start_ms: int, end_ms: int) -> int:
        """Return how many milliseconds the spells cover from start to end; the last may be open."""
        return self._until(end_ms) - self._until(start_ms)

    def _until(self, at_ms: int) -> int:
        number = bisect_right(self.starts, at_ms) - 1
        if number < 0:
            return 0
        end_ms = self.ends[number] if number < len(self.ends) else at_ms
        return self._before[number] + min(at_ms, end_ms) - self.starts[number]


@dataclass
class Waits:
    """Fold for the reasons to wait. Older epochs' decisions must not get here."""

    _roles: defaultdict[str, list[tuple[int, str]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    """(start, role) pairs for each worker; an empty role means none."""
    _open: set[str] = field(default_factory=set)
    _rolled: Spells = field(default_factory=Spells)
    """Times with a group under way."""
    _batches: defaultdict[str, Spells] = field(default_factory=lambda: defaultdict(Spells))
    """Times with a batch that is not yet trained, by policy."""

    def apply(self, record: Record) -> None:
        """Fold a record in."""
        match record:
            case r.RoleAcquired():
                self._roles[record.worker].append((record.at_ms, record.role))
            case r.RoleReleased():
                self._roles[record.worker].append((record.at_ms, ""))
            case r.AssignmentTimedOut():
                self._roles[record.worker].append((record.at_ms, ""))
            case r.WorkerLost() if self._role(record.worker) == record.process:
                self._roles[record.worker].append((record.at_ms, ""))
            case r.GroupAdmitted():
                self._open.add(record.group_id)
                self._rolled.begin(record.at_ms)
            case r.GroupReady() | r.GroupDropped():
                self._open.discard(record.group_id)
                if not self._open:
                    self._rolled.end(record.at_ms)
            case r.BatchReady():
                self._batches[record.policy].begin(record.at_ms)
            case r.StepStarted() | r.StepSkipped():
                self._batches[record.policy].end(record.at_ms)

    def explained(self, intervals: Iterable[Interval]) -> Iterator[Interval]:
        """Yield the intervals; those with waiting get its reasons."""
        for interval in intervals:
            waiting = interval.by_category().get(WAITING, 0.0)
            yield replace(interval, waits=self._reasons(interval, waiting)) if waiting else interval

    def _reasons(self, interval: Interval, waiting: float) -> dict[str, float]:
        if interval.state == ROLLOUT:
            if not interval.shares:
                return {REPORT: waiting}
            return _split(
                waiting,
                self._rolled.within(interval.start_ms, interval.end_ms),
                interval,
                TURNS,
                GROUPS,
            )
        if interval.state == TRAINING:
            return {GANG: waiting}
        ms = defaultdict[str, int](int)
        for start_ms, end_ms, role in self._stretches(interval):
            ready_ms = self._ready(start_ms, end_ms) if role == _TRAIN else 0
            ms[GANG] += ready_ms
            ms[BATCH if role == _TRAIN else ROLE] += end_ms - start_ms - ready_ms
        length_ms = interval.end_ms - interval.start_ms
        return {reason: waiting * part / length_ms for reason, part in ms.items() if part > 0}

    def _ready(self, start_ms: int, end_ms: int) -> int:
        """Return how long a batch waits in this time."""
        return max((batch.within(start_ms, end_ms) for batch in self._batches.values()), default=0)

    def _stretches(self, interval: Interval) -> Iterator[tuple[int, int, str]]:
        """Yield the interval in parts, each with the worker's role."""
        roles = self._roles.get(interval.worker, [])
        number = bisect_right(roles, interval.start_ms, key=lambda entry: entry[0])
        start_ms = interval.start_ms
        role = roles[number - 1][1] if number else ""
        while number < len(roles) and roles[number][0] < interval.end_ms:
            yield start_ms, max(start_ms, roles[number][0]), role
            start_ms = max(start_ms, roles[number][0])
            role = roles[number][1]
            number += 1
        yield start_ms, interval.end_ms, role

    def _role(self, worker: str) -> str:
        """Return the worker's newest role, or an empty string."""
        roles = self._roles.get(worker)
        return roles[-1][1] if roles else ""


def _split(
    waiting: float, first_ms: int, interval: Interval, first: str, second: str
) -> dict[str, float]:
    """Return the waiting in two parts, the first for the interval's `first_ms`."""
    part = waiting * min(1.0, first_ms / (interval.end_ms - interval.start_ms))
    return {name: share for name, share in ((first, part), (second, waiting - part)) if share > 0}
