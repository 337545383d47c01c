"""The scheduler's decision: a pure function from what it has read to what it writes now.

It may be called at any moment after everything it decided before was read back, and then never
decides the same thing twice. Called by `scheduler/controller.py` and the simulator.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce

from seamlessflow.scheduler.decisions import (
    assignments,
    membership,
    pacing,
    stalls,
    waste,
)
from seamlessflow.scheduler.decisions.membership import Contact
from seamlessflow.scheduler.decisions.sharing import Allotment, allotted
from seamlessflow.scheduler.decisions.snapshot import snapshot
from seamlessflow.scheduler.decisions.strategies.wanted import Strategy
from seamlessflow.scheduler.settings import SchedulerSettings, milliseconds
from seamlessflow.scheduler.state import serving
from seamlessflow.scheduler.state import state as control_state
from seamlessflow.scheduler.state.fleet import Fleet
from seamlessflow.scheduler.state.serving import ServingProcesses
from seamlessflow.scheduler.state.state import State
from seamlessflow.scheduler.state.unread import UnreadTopics
from seamlessflow.scheduler.tasks.mixture import TaskSets
from seamlessflow.schemas.records import ProgressStalled, Record, Task
from seamlessflow.schemas.topics import CONTROL, FLEET, PROMPTS, TASKS


@dataclass(frozen=True, slots=True)
class Rules:
    """The inputs of a decision that do not change while the scheduler runs."""

    settings: SchedulerSettings
    strategy: Strategy
    tasks: TaskSets = field(default_factory=TaskSets)
    slots: int = PROMPTS.partitions
    """Partitions of `prompts`: rollout workers that can serve at once."""


@dataclass(frozen=True, slots=True)
class View:
    """The inputs of a decision that change: the folds of the topics, the tasks that this scheduler
    has issued, its contact with Kafka, and the topics whose readers are behind.
    """

    state: State = field(default_factory=State)
    fleet: Fleet = field(default_factory=Fleet)
    issued: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    """Newest attempt by group and sample. Not part of `State`: `tasks` is never read back."""
    contact: Contact = field(default_factory=Contact)
    unread: UnreadTopics = field(default_factory=dict)


Outgoing = tuple[str, Record]
"""Topic and record."""


def decide(view: View, rules: Rules, now_ms: int) -> list[Outgoing]:
    """Return all records that are due at `now_ms`, in the order to write them."""
    if finished(view.state, rules.settings):
        return []
    state, fleet, limits = view.state, view.fleet, rules.settings.scheduler
    timeout_ms = milliseconds(limits.heartbeat_timeout_s)
    members: Sequence[Record] = [
        *membership.lost(state, fleet, view.contact, now_ms, timeout_ms),
        *membership.joined(state, fleet, now_ms, timeout_ms),
        *assignments.timed_out(state, now_ms),
    ]
    # Roles follow from who is a member, so they are decided after these were read back.
    roles = [] if members else _roles(view, rules, now_ms)
    return [
        *((CONTROL.name, record) for record in members),
        *roles,
        *_groups(view, rules, _serves(state, members), now_ms),
        *((CONTROL.name, record) for record in _stalls(view, rules.settings, now_ms)),
    ]


def finished(state: State, settings: SchedulerSettings) -> bool:
    """Return True if the run has made all its steps, of each policy."""
    return all(shown.finished_steps >= settings.run.steps for shown in state.each)


def _stalls(view: View, settings: SchedulerSettings, now_ms: int) -> list[ProgressStalled]:
    state = view.state
    leading = pacing.unfinished(state, settings)[0]
    absent = stalls.absent(leading, view.fleet, view.unread, view.contact, settings, now_ms)
    return stalls.unreported(state, [*stalls.of_all(state, settings, now_ms), *absent])


def _roles(view: View, rules: Rules, now_ms: int) -> list[Outgoing]:
    """Return assignments and starts of steps: each policy's, by the strategy, on its workers."""
    if len(view.state.policies) == 1:
        return _roles_of(view, rules, None, now_ms)
    written: list[Outgoing] = []
    allotment = allotted(view.state, view.fleet, rules.settings, now_ms)
    for place, policy in enumerate(view.state.policies):
        run = rules.settings.run.model_copy(update={"policy": policy})
        settings = rules.settings.model_copy(update={"run": run})
        now = replace(view, state=replace(view.state, shown=place))
        more = _roles_of(now, replace(rules, settings=settings), allotment, now_ms)
        # The next policy's numbers, gang and slots follow those of this one.
        view = replace(view, state=reduce(control_state.apply, _of_control(more), view.state))
        written += more
    return written


def _of_control(written: Sequence[Outgoing]) -> list[Record]:
    return [record for topic, record in written if topic == CONTROL.name]


def _roles_of(view: View, rules: Rules, allotment: Allotment | None, now_ms: int) -> list[Outgoing]:
    """Return those of the policy that the state shows, on the workers given to it; None: on all."""
    state, settings = view.state, rules.settings
    policy = settings.run.policy
    names = None if allotment is None else allotment.workers[policy]
    seen = snapshot(state, view.fleet, settings, now_ms, names)
    wanted = rules.strategy(seen)
    if allotment is not None:
        wanted = allotment.explained(wanted, policy, state.workers)
    changes = assignments.new_assignments(state, seen, wanted, settings, rules.slots)
    written: list[Outgoing] = []
    for assigned in changes.assigned:
        written.append((CONTROL.name, assigned))
        written.append((FLEET.name, assignments.worker_assignment(assigned)))
    started = assignments.started(state, seen, wanted, policy)
    written += [(CONTROL.name, record) for record in started]
    warnings = waste.warnings(state, seen, settings, changes.without_slot)
    return [*written, *((CONTROL.name, record) for record in warnings)]


def _serves(state: State, members: Sequence[Record]) -> ServingProcesses:
    """Return what serves after the losses that are decided now."""
    return reduce(
        lambda processes, record: serving.apply(processes, record, state.policies),
        members,
        state.serving,
    )


def _groups(view: View, rules: Rules, serves: ServingProcesses, now_ms: int) -> list[Outgoing]:
    """Return what is due of groups; `serves` knows of the losses that are decided now."""
    state, settings, sets = view.state, rules.settings, rules.tasks
    control: list[Record] = []
    if serves.incarnations:
        control += pacing.expirations(state, settings.run.policy, now_ms)
    if sets.training is not None:
        control += pacing.admissions(state, settings, sets.training, now_ms)
    for split, source in sets.evaluations.items():
        control += pacing.evaluations(state, settings, split, source, now_ms)
    ledger = pacing.unfinished(state, settings)[0].ledger
    issued: list[Task] = []
    if serves.incarnations:  # else agents would begin, and their deadlines pass, before an engine
        issued = pacing.tasks(ledger, view.issued, settings, sets, now_ms, serves)
    return [
        *((CONTROL.name, record) for record in control),
        *((TASKS.name, task) for task in issued),
    ]
