"""The scheduler's decision: a pure function from the records read to the records to write now.

It may be called at any time once all its earlier decisions are read back. It then never decides the
same thing twice. `next_due_ms` says when the decision may change without a new record. Called by
`scheduler/controller.py` and the simulator.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce

from seamlessflow.scheduler.decisions import (
    assignments,
    group_credits,
    membership,
    pacing,
    showing,
    stalls,
    waste,
)
from seamlessflow.scheduler.decisions.episodes import all_groups, under_way
from seamlessflow.scheduler.decisions.gates import TRIPS_APART, UNMEASURED_SWITCH_MS
from seamlessflow.scheduler.decisions.membership import Contact
from seamlessflow.scheduler.decisions.sharing import Allotment, allotted
from seamlessflow.scheduler.decisions.snapshot import retry_ms, snapshot
from seamlessflow.scheduler.decisions.strategies.wanted import Strategy, only_rollout
from seamlessflow.scheduler.sampling.draws import TaskSampling
from seamlessflow.scheduler.settings import SchedulerSettings, milliseconds
from seamlessflow.scheduler.state import serving
from seamlessflow.scheduler.state import state as control_state
from seamlessflow.scheduler.state.arms import Arms
from seamlessflow.scheduler.state.fleet import Fleet
from seamlessflow.scheduler.state.ledger import Ledger
from seamlessflow.scheduler.state.policy_state import PolicyState
from seamlessflow.scheduler.state.serving import ServingProcesses
from seamlessflow.scheduler.state.state import State
from seamlessflow.scheduler.state.unread import UnreadTopics
from seamlessflow.scheduler.state.workers import Workers
from seamlessflow.scheduler.tasks.mixture import TaskSets
from seamlessflow.schemas.records import ProgressStalled, Record, Task
from seamlessflow.schemas.topics import CONTROL, FLEET, PROMPTS, TASKS


@dataclass(frozen=True, slots=True)
class Rules:
    """A decision's inputs that do not change while the scheduler runs."""

    settings: SchedulerSettings
    strategy: Strategy
    tasks: TaskSets = field(default_factory=TaskSets)
    slots: int = PROMPTS.partitions
    """Partition count of `prompts`: as many rollout workers can serve at once."""
    sampling: TaskSampling = field(default_factory=TaskSampling)


@dataclass(frozen=True, slots=True)
class View:
    """A decision's inputs that change while the scheduler runs.

    They are the topics' folds, issued tasks, contact with Kafka, and topics with late readers.
    """

    state: State = field(default_factory=State)
    fleet: Fleet = field(default_factory=Fleet)
    issued: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    """Newest attempt by group and sample. Not part of `State`: `tasks` is never read back."""
    contact: Contact = field(default_factory=Contact)
    unread: UnreadTopics = field(default_factory=dict)
    arms: Arms = field(default_factory=Arms)

    def with_issued(self, tasks: Iterable[Task]) -> "View":
        """Return the view after these tasks were sent, without tasks for ended groups."""
        groups = under_way(self.state)
        issued = {name: samples for name, samples in self.issued.items() if name in groups}
        for task in tasks:
            samples = issued.get(task.group_id, {})
            issued[task.group_id] = {**samples, task.sample: task.attempt}
        return replace(self, issued=issued)


Outgoing = tuple[str, Record]
"""Topic and record."""
_UNTRAINED = PolicyState()
"""State for a policy that is served and not trained; it has no groups and no steps."""


def decide(view: View, rules: Rules, now_ms: int) -> list[Outgoing]:
    """Return all records that are due at `now_ms`, in writing order."""
    if finished(view.state, rules.settings):
        return []
    state = view.state
    fleet = view.fleet
    limits = rules.settings.scheduler
    timeout_ms = milliseconds(limits.heartbeat_timeout_s)
    members: Sequence[Record] = [
        *membership.lost(state, fleet, view.contact, now_ms, timeout_ms),
        *membership.joined(state, fleet, now_ms, timeout_ms),
        *assignments.timed_out(state, now_ms),
    ]
    # Roles depend on the members, so they are decided after these records are read back.
    roles = [] if members else _roles(view, rules, now_ms)
    return [
        *((CONTROL.name, record) for record in members),
        *roles,
        *showing.changes(state, group_credits.leading(state, rules.settings).ledger, fleet, now_ms),
        *_groups(view, rules, _serves(state, members), now_ms),
        *((CONTROL.name, record) for record in _stalls(view, rules.settings, now_ms)),
    ]


def next_due_ms(view: View, rules: Rules, now_ms: int) -> int | None:
    """Return the next time when a decision may differ without a new record, or None.

    Time enters decisions only through deadlines, pauses and waits. A caller who knows the next one
    need not ask before it. Heartbeats and contact with Kafka are left out: a process takes those
    from its own clock.
    """
    state = view.state
    settings = rules.settings
    times = [*_due_workers(state)]
    for policy in state.by_policy:
        times += _due_groups(policy.ledger, state.serving, settings, now_ms)
        times += _due_moves(state.workers, policy, settings)
        times += _due_waits(state.claimed_ms, policy, settings, now_ms)
    return min((time for time in times if time > now_ms), default=None)


def finished(state: State, settings: SchedulerSettings) -> bool:
    """Return True if each of the run's policies has made all its steps."""
    return all(policy.finished_steps >= settings.run.steps for policy in state.by_policy)


def _stalls(view: View, settings: SchedulerSettings, now_ms: int) -> list[ProgressStalled]:
    state = view.state
    absent = stalls.absent(state, view.fleet, view.unread, view.contact, settings, now_ms)
    return stalls.unreported(state, [*stalls.of_all(state, settings, now_ms), *absent])


def _roles(view: View, rules: Rules, now_ms: int) -> list[Outgoing]:
    """Return assignments and step starts for each policy: the strategy runs on its workers."""
    if view.state.alone:
        return _roles_of(view, view.state.first, rules, None, now_ms)
    written: list[Outgoing] = []
    allotment = allotted(view.state, view.fleet, rules.settings, now_ms)
    trained = dict(enumerate(view.state.by_policy))
    for place, policy in enumerate(view.state.served):
        run = rules.settings.run.model_copy(update={"policy": policy})
        settings = rules.settings.model_copy(update={"run": run})
        its_state = trained.get(place, _UNTRAINED)
        strategy = rules.strategy if place in trained else only_rollout
        its_rules = replace(rules, settings=settings, strategy=strategy)
        more = _roles_of(view, its_state, its_rules, allotment, now_ms)
        # The next policy's numbers, gang and slots continue from this policy's.
        view = replace(view, state=reduce(control_state.apply, _of_control(more), view.state))
        written += more
    return written


def _of_control(written: Sequence[Outgoing]) -> list[Record]:
    return [record for topic, record in written if topic == CONTROL.name]


def _roles_of(
    view: View, policy: PolicyState, rules: Rules, allotment: Allotment | None, now_ms: int
) -> list[Outgoing]:
    """Return assignments and starts for the policy in `rules`, on its workers or on all (None)."""
    state = view.state
    settings = rules.settings
    name = settings.run.policy
    names = None if allotment is None else allotment.workers[name]
    seen = snapshot(state, policy, view.fleet, settings, now_ms, names)
    wanted = rules.strategy(seen)
    if allotment is not None:
        wanted = allotment.explained(wanted, name, state.workers)
    changes = assignments.new_assignments(state, seen, wanted, settings, rules.slots)
    written: list[Outgoing] = []
    for assigned in changes.assigned:
        written.append((CONTROL.name, assigned))
        written.append((FLEET.name, assignments.worker_assignment(assigned)))
    started = assignments.started(state.epoch, policy.steps, seen, wanted, name)
    written += [(CONTROL.name, record) for record in started]
    if policy is _UNTRAINED:
        return written
    warnings = waste.warnings(state, policy, seen, settings, changes.without_slot)
    return [*written, *((CONTROL.name, record) for record in warnings)]


def _serves(state: State, members: Sequence[Record]) -> ServingProcesses:
    """Return the serving processes after the losses decided now."""
    return reduce(
        lambda processes, record: serving.apply(processes, record, state.served),
        members,
        state.serving,
    )


def _groups(view: View, rules: Rules, serves: ServingProcesses, now_ms: int) -> list[Outgoing]:
    """Return the due records about groups; `serves` includes the losses decided now."""
    state = view.state
    settings = rules.settings
    sets = rules.tasks
    control: list[Record] = []
    if serves.incarnations:
        control += pacing.expirations(state, settings.run.policy, now_ms)
    if sets.training is not None:
        control += pacing.admissions(
            state, settings, sets.training, now_ms, view.arms, rules.sampling
        )
    for split, source in sets.evaluations.items():
        control += pacing.evaluations(state, settings, split, source, now_ms)
    ledger = group_credits.leading(state, settings).ledger
    issued: list[Task] = []
    # Otherwise agents would begin, and their deadlines pass, before an engine serves.
    if serves.incarnations and showing.is_served(state, ledger):
        ledger = all_groups(state, ledger, settings)
        issued = pacing.tasks(ledger, view.issued, settings, sets, now_ms, serves)
    return [
        *((CONTROL.name, record) for record in control),
        *((TASKS.name, task) for task in issued),
    ]


def _due_groups(
    ledger: Ledger, serves: ServingProcesses, settings: SchedulerSettings, now_ms: int
) -> Iterator[int]:
    every_ms = group_credits.attempt_ms(settings)
    for group in ledger.groups.values():
        if not group.ready and not group.expired:
            since_ms = group_credits.begun_ms(group, serves)
            yield serves.after(since_ms, group.deadline_ms - group.admitted_ms)
            attempt = serves.served_ms(since_ms, now_ms) // every_ms
            yield serves.after(since_ms, (attempt + 1) * every_ms)


def _due_workers(state: State) -> Iterator[int]:
    for worker in state.workers.values():
        assignment = worker.assignment
        if assignment is not None and assignment.acquired_ms is None and not assignment.lapsed:
            yield assignment.deadline_ms
        for failures in worker.failures.values():
            yield retry_ms(failures)


def _due_moves(workers: Workers, policy: PolicyState, settings: SchedulerSettings) -> Iterator[int]:
    """Yield the times when a worker that holds training may leave it (`gates.may_leave`)."""
    if policy.steps.waiting is not None:
        return
    dwell_ms = milliseconds(settings.scheduler.min_dwell_s)
    parts = [policy.costs.switch_mean(role) for role in ("train", "rollout")]
    measured = [part for part in parts if part is not None]
    switch_ms = sum(measured) if len(measured) == len(parts) else UNMEASURED_SWITCH_MS
    for worker in workers.values():
        assignment = worker.assignment
        if worker.role == "train" and assignment is not None and assignment.acquired_ms is not None:
            yield assignment.acquired_ms + dwell_ms
            # It must have waited longer than the switch takes, and may not leave like this too
            # often.
            waited_ms = int(max(policy.steps.ended_ms, assignment.acquired_ms) + switch_ms) + 1
            yield waited_ms
            if len(measured) == len(parts):
                yield max(waited_ms, int(assignment.acquired_ms + TRIPS_APART * switch_ms) + 1)


def _due_waits(
    claimed_ms: int, policy: PolicyState, settings: SchedulerSettings, now_ms: int
) -> Iterator[int]:
    yield claimed_ms + waste.SETTLED_MS
    yield claimed_ms + milliseconds(settings.scheduler.assignment_timeout_s)
    stall_ms = milliseconds(settings.scheduler.stall_s)
    waiting = policy.steps.waiting
    if waiting is not None:
        yield (waiting[1].started_ms or waiting[1].ready_ms) + stall_ms
    yield policy.ledger.moved_ms + stall_ms
    # Further replacements of dropped groups are allowed once for each stall time.
    since_ms = max(policy.steps.ended_ms, claimed_ms)
    yield since_ms + (max(0, now_ms - since_ms) // stall_ms + 1) * stall_ms
