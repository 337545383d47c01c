"""What the scheduler writes now: a pure function of what it read.

It may be asked at any moment after everything it decided before was read back; it says nothing
twice. Called by `scheduler/controller.py` and the simulator.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from scheduler.decisions import assignments, membership, pacing, stalls, waste
from scheduler.decisions.contact import Contact
from scheduler.decisions.policies import Policy
from scheduler.decisions.snapshot import snapshot
from scheduler.decisions.task_source import TaskSource
from scheduler.settings import SchedulerSettings, milliseconds
from scheduler.state.fleet import Fleet
from scheduler.state.state import State
from schemas.records import Record
from schemas.topics import CONTROL, FLEET, TASKS


@dataclass(frozen=True, slots=True)
class Plan:
    """What does not change while the scheduler runs."""

    settings: SchedulerSettings
    policy: Policy
    sources: Mapping[str, TaskSource] = field(default_factory=dict)
    """Tasks by purpose (`train`, `eval`)."""


@dataclass(frozen=True, slots=True)
class View:
    """What the scheduler knows: the folds of the topics, which tasks it issued itself, and until
    when it heard of Kafka.
    """

    state: State = field(default_factory=State)
    fleet: Fleet = field(default_factory=Fleet)
    issued: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    """Newest attempt by group and sample."""
    contact: Contact = field(default_factory=Contact)


Outgoing = tuple[str, Record]
"""Topic and record."""


def decide(view: View, plan_: Plan, now_ms: int) -> list[Outgoing]:
    """Everything that is due at `now_ms`, in the order to write it."""
    if finished(view.state, plan_.settings):
        return []
    state, fleet, limits = view.state, view.fleet, plan_.settings.scheduler
    timeout_ms = milliseconds(limits.heartbeat_timeout_s)
    members: Sequence[Record] = [
        *membership.lost(state, fleet, view.contact, now_ms, timeout_ms),
        *membership.joined(state, fleet, now_ms, timeout_ms),
        *assignments.timed_out(state, now_ms),
    ]
    # What follows from these is decided when they are read back.
    roles = [] if members else _roles(view, plan_, now_ms)
    return [
        *((CONTROL.name, record) for record in members),
        *roles,
        *_groups(view, plan_, now_ms),
        *((CONTROL.name, record) for record in stalls.stalled(state, plan_.settings, now_ms)),
    ]


def finished(state: State, settings: SchedulerSettings) -> bool:
    """Whether the run has made all its steps."""
    return state.finished_steps >= settings.run.steps


def _roles(view: View, plan_: Plan, now_ms: int) -> list[Outgoing]:
    state, settings = view.state, plan_.settings
    seen = snapshot(state, view.fleet, settings, now_ms)
    wanted = plan_.policy(seen)
    moves = assignments.moves(state, seen, wanted, settings.scheduler)
    written: list[Outgoing] = []
    for assigned in moves.assigned:
        written.append((CONTROL.name, assigned))
        written.append((FLEET.name, assignments.kept(assigned)))
    written += [(CONTROL.name, record) for record in assignments.started(state, seen, wanted)]
    warnings = waste.warnings(state, seen, settings, moves.without_slot)
    return [*written, *((CONTROL.name, record) for record in warnings)]


def _groups(view: View, plan_: Plan, now_ms: int) -> list[Outgoing]:
    state, settings, sources = view.state, plan_.settings, plan_.sources
    control: list[Record] = [*pacing.expirations(state, now_ms)]
    if "train" in sources:
        control += pacing.admissions(state, settings, sources["train"], now_ms)
    if "eval" in sources:
        control += pacing.evaluations(state, settings, sources["eval"], now_ms)
    issued = pacing.tasks(state.ledger, view.issued, settings, sources, now_ms)
    return [
        *((CONTROL.name, record) for record in control),
        *((TASKS.name, task) for task in issued),
    ]
