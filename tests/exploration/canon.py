"""Canonical forms: what future behaviour depends on, without accidental numbers.

Assignment numbers, gang epochs and times matter only by their order, and times also by whether they
are longer ago than a limit. So a form is a hash of all else and a list of such marked numbers, and
`canonical` renumbers them. Two worlds with one canonical form go on alike.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cache
from typing import Any

from seamlessflow.producers.rollout.roles.roles import RolloutRoles
from seamlessflow.scheduler.state.policy_state import PolicyState
from seamlessflow.scheduler.state.steps import Gang
from seamlessflow.scheduler.state.workers import RoleFailures, Worker
from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Record
from seamlessflow.trainer.roles.roles import TrainerRoles

PAUSE_MS = 61_000
"""A time that passes every retry and dwell, and is shorter than every deadline."""

_SHIFT = 56
_NUMBER, _GANG, _AGE, _LIFE, _ORDER = (kind << _SHIFT for kind in range(1, 6))
_MIDDLE = 1 << 55
"""Added to marked values, so that negative ones stay within their kind."""

_KINDS = {
    "assignment": _NUMBER,
    "number": _NUMBER,
    "newest_assignment": _NUMBER,
    "gang_epoch": _GANG,
    "newest_gang": _GANG,
    "started_epoch": _GANG,
    "acquired_ms": _AGE,
    "deadline_ms": _AGE,
}
_IGNORED = {
    # Figures that steer only tasks, and optional moves of runs with tasks, and words for people.
    *("costs", "ledger", "serving", "warned", "stalled", "figures", "hardware"),
    *("phases_ms", "metrics"),
    *("reason", "release", "took_ms", "waited_ms", "free_bytes", "handed_back", "count"),
    # Times that only reports use, or that `of_record` judges.
    *("claimed_ms", "ready_ms", "started_ms", "ended_ms", "assigned_ms", "at_ms"),
    # The same in all worlds, or a figure of another field.
    *("directory", "manifest_sha256", "tags", "devices", "turns", "queued", "counted_ms"),
}
_MOST_KNOWN = 300_000
_APART = {Gang: ("epoch",), RolloutRoles: ("trainer",), TrainerRoles: ("rollout", "followed")}
"""Fields that `Collector.fields` takes apart in a way of their own."""
_PLAIN = {int, str, bool, float, type(None), frozenset}
_SHARED = {Worker, PolicyState}
_fields_of: dict[type[Any], tuple[str, ...]] = {}


@dataclass(frozen=True, slots=True)
class Form:
    """The hash of what does not change by renumbering, and the marked numbers in order."""

    fixed: int
    marks: tuple[int, ...]


@dataclass(slots=True)
class Collector:
    """The parts of a form under way."""

    parts: list[Any] = field(default_factory=list)
    marks: list[int] = field(default_factory=list)

    def add(self, *values: Any) -> None:
        """Add plain values."""
        self.parts += values

    def join(self, *forms: Form) -> None:
        """Add forms."""
        for form in forms:
            self.parts.append(form.fixed)
            self.marks += form.marks

    def mark(self, kind: int, value: int | None) -> None:
        """Add a number that is to be renumbered, or None."""
        self.parts.append(value is None)
        if value is not None:
            self.marks.append(kind + _MIDDLE + value)

    def number(self, assignment: int) -> None:
        """Add the number of an assignment."""
        self.mark(_NUMBER, assignment)

    def life(self, incarnation: str) -> None:
        """Add an incarnation: one is only ever compared with others of its process, so the number
        of lives before it is an accident.
        """
        process, place = _life(incarnation)
        self.parts.append(process)
        if place:
            self.marks.append(_LIFE + _MIDDLE + place)

    def order(self, worker: str, at_ms: int) -> None:
        """Add a time that is compared with others of the same worker."""
        self.mark(_ORDER + (ord(worker) - ord("a") << _SHIFT), at_ms)

    def value(self, value: Any, name: str = "") -> None:
        """Add a fold, a record or a plain value; `name` is that of its field."""
        kind = type(value)
        if name in _KINDS and (value is None or kind is int):
            self.mark(_KINDS[name], value)
        elif name == "incarnation":
            self.life(value)
        elif kind in _PLAIN:
            self.parts.append(value)
        elif kind in _SHARED or isinstance(value, Record):
            self.join(of_shared(value))
        elif is_dataclass(kind):
            self.parts.append(kind.__name__)
            self.fields(value)
        elif isinstance(value, Mapping):
            self.parts.append(len(value))
            for key in sorted(value):
                self.parts.append(key)
                of_member = "incarnation" if isinstance(value[key], str) else "number"
                self.value(value[key], of_member if name == "members" else "")
        elif kind is tuple:
            self.parts.append(len(value))
            for member in value:
                self.value(member)
        else:
            self.parts.append(value)

    def form(self) -> Form:
        """Return the form."""
        return Form(hash(tuple(self.parts)), tuple(self.marks))

    def fields(self, value: Any) -> None:
        for name in _names(type(value)):
            self.value(getattr(value, name), name)
        match value:
            case Gang():
                self.mark(_GANG, value.epoch)
            case RoleFailures():
                self.mark(_AGE, value.at_ms)
            case TrainerRoles():
                # It reads `control` alone, in whose order these times are.
                self.add(value.rollout[1], value.followed[1])
                self.mark(_GANG, value.followed[0])
            case RolloutRoles():
                self.order(value.worker, value.trainer[0])
                self.add(value.trainer[1])
            case Record():
                _times(value, self)
        if hasattr(value, "obeyed"):
            self.add(value.obeyed[0])
            self.number(value.obeyed[1])


def form_of(value: Any) -> Form:
    """Return the form of a fold."""
    collector = Collector()
    collector.value(value)
    return collector.form()


_known: dict[int, tuple[object, Form]] = {}


def of_shared(value: Any) -> Form:
    """Return the form of a value that is never changed, only replaced: it is made once."""
    entry = _known.get(id(value))
    if entry is None:
        if len(_known) > _MOST_KNOWN:
            _known.clear()
        collector = Collector([type(value).__name__])
        collector.fields(value)
        entry = _known[id(value)] = (value, collector.form())
    return entry[1]


def canonical(now_ms: int, forms: Iterable[Form]) -> int:
    """Return the hash of forms whose marked numbers are renumbered."""
    collector = Collector()
    collector.join(*forms)
    ranks: dict[int, int] = {}
    rank, before = 0, 0
    for mark in sorted(set(collector.marks)):
        kind = mark >> _SHIFT << _SHIFT
        if kind == _AGE:
            waited_ms = now_ms - (mark - kind - _MIDDLE)
            ranks[mark] = max(-1, min(1, waited_ms // PAUSE_MS))
            continue
        # A process counts as silent after a while.
        rank += 1000 if kind >= _ORDER and mark - before >= PAUSE_MS else 1
        ranks[mark], before = rank, mark
    return hash((tuple(collector.parts), tuple([ranks[mark] for mark in collector.marks])))


@cache
def _life(incarnation: str) -> tuple[str, int]:
    """Return the process of an incarnation, and the place of its mark; 0 if there is none."""
    process, _, number = incarnation.rpartition("-")
    if not number.isdigit():
        return incarnation, 0
    worker, _, kind = process.partition("-")
    return process, ((2 * ord(worker) + (kind == "train")) << 20) + int(number)


def _times(record: Record, collector: Collector) -> None:
    match record:
        case r.RoleAcquired() | r.RoleReleased() | r.AssignmentTimedOut():
            collector.mark(_AGE, record.at_ms)
    match record:
        # By their times a rollout process orders what it knows of its trainer process.
        case (
            r.RoleAcquired(role="train")
            | r.RoleReleased(role="train")
            | r.WorkerLost(process="train")
            | r.WorkerHeartbeat(process="train")
        ):
            collector.order(record.worker, record.at_ms)


def _names(kind: type[Any]) -> tuple[str, ...]:
    """Return the fields of a class that matter as they are."""
    entry = _fields_of.get(kind)
    if entry is None:
        special = {
            name for base, names in _APART.items() if issubclass(kind, base) for name in names
        }
        left_out = {*_IGNORED, *special, "obeyed"}
        names = tuple(member.name for member in fields(kind) if member.name not in left_out)
        entry = _fields_of[kind] = names
    return entry
