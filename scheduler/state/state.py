"""The system's state as one value: the pure fold of `control`.

`apply` expects the records in log order. After a newer claim it ignores decisions from an older
epoch. The same records give the same state in every process. So the state can be stored
(`to_json`), and the next scheduler continues from there. Called by `scheduler/journal.py`, the
simulator and tests.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from hashlib import sha256
from types import MappingProxyType

from pydantic import TypeAdapter, ValidationError

from seamlessflow.infra.clock import NEVER_MS
from seamlessflow.infra.settings import PastSection
from seamlessflow.scheduler.state import offers, past, policy_state, serving, workers
from seamlessflow.scheduler.state.ledger import EVAL, TRAIN, AdmittedGroup, arms_of, first_of
from seamlessflow.scheduler.state.offers import Offers
from seamlessflow.scheduler.state.past import ShownVersions
from seamlessflow.scheduler.state.policy_state import PolicyState, concerned
from seamlessflow.scheduler.state.serving import ServingProcesses
from seamlessflow.scheduler.state.workers import Worker, device_count
from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Record

NO_FROZEN: Mapping[str, PastSection | None] = MappingProxyType({})
SchedulerDecision = (
    r.WorkerJoined
    | r.WorkerLost
    | r.RoleAssigned
    | r.AssignmentTimedOut
    | r.GroupAdmitted
    | r.GroupExpired
    | r.StepStarted
    | r.PlanWarning
)
"""Records that only the scheduler writes, under its epoch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """Everything on `control` that decisions depend on."""

    epoch: int = 0
    scheduler: str = ""
    """The scheduler that claimed the epoch first."""
    claimed_ms: int = 0
    workers: Mapping[str, Worker] = field(default_factory=dict)
    devices: Mapping[str, int] = field(default_factory=dict)
    """Device count by worker. Lost workers are included: their last reports still count."""
    serving: ServingProcesses = field(default_factory=ServingProcesses)
    newest_assignment: int = -1
    newest_gang: int = 0
    """Largest gang epoch over all policies."""
    stalled: Mapping[str, int] = field(default_factory=dict)
    """When each reported stall began, by its kind."""
    policies: tuple[str, ...] = ("",)
    """Policies that are trained, the first one first.

    A policy without a name takes all records as its own.
    """
    frozen: tuple[str, ...] = ()
    """Policies that are served and not trained."""
    shown: Mapping[str, ShownVersions] = field(default_factory=dict)
    """Versions that such policies show from another policy, by name."""
    by_policy: tuple[PolicyState, ...] = (PolicyState(),)
    """The policies' states, ordered like `policies`."""
    uncounted: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Arms by drawn task's group, while its result is not on the log; the task's arm is first."""
    offers: Offers = field(default_factory=Offers)
    """Places in ended sessions where others may begin."""

    @classmethod
    def of_run(
        cls, policies: Sequence[str], frozen: Mapping[str, PastSection | None] = NO_FROZEN
    ) -> "State":
        """Return the state at the beginning of a run with these policies."""
        if len(policies) < 2 and not frozen:
            return cls()
        return cls(
            policies=tuple(policies),
            frozen=tuple(frozen),
            shown={
                name: ShownVersions(policy=terms.policy, every=terms.every)
                for name, terms in frozen.items()
                if terms is not None
            },
            by_policy=(PolicyState(),) * len(policies),
        )

    def begins_as(self, other: "State") -> bool:
        """Return whether both states belong to runs with the same policies."""
        terms = [
            {name: (shown.policy, shown.every) for name, shown in state.shown.items()}
            for state in (self, other)
        ]
        return self.served == other.served and terms[0] == terms[1]

    @property
    def alone(self) -> bool:
        """True for a run with one policy, whatever its name."""
        return not self.policies[0]

    @property
    def served(self) -> tuple[str, ...]:
        """All policies that workers serve, the trained ones first."""
        return (*self.policies, *self.frozen)

    @property
    def first(self) -> PolicyState:
        """The first policy's state, which evaluations and group numbers follow."""
        return self.by_policy[0]


def apply(state: State, record: Record) -> State:
    """Return the state after the next `control` record; the same object if nothing changes."""
    if isinstance(record, SchedulerDecision) and record.epoch < state.epoch:
        return state
    after = _own_fields(state, record)
    by_policy = _by_policy(state, record)
    uncounted = _uncounted(state, record, by_policy)
    if uncounted is not state.uncounted:
        after = replace(after, uncounted=uncounted)
    parts = {
        "workers": workers.apply(state.workers, record),
        "serving": _serving(state, record, by_policy),
        "by_policy": by_policy,
        "offers": offers.apply(state.offers, record, _begun_or_ended(state, record, by_policy)),
        "shown": _versions_shown(state.shown, record),
    }
    changed = {name: part for name, part in parts.items() if part is not getattr(state, name)}
    return replace(after, **changed) if changed else after  # type: ignore[arg-type]


def is_new_group(state: State, record: r.GroupAdmitted) -> bool:
    """Return whether a record admits a drawn task's group that the state does not have."""
    if record.purpose == EVAL or record.explored or record.epoch < state.epoch:
        return False
    if record.group_id != first_of(record.roles, record.group_id):
        return False
    return all(record.group_id not in policy.ledger.groups for policy in state.by_policy)


def _uncounted(
    state: State, record: Record, by_policy: Sequence[PolicyState]
) -> Mapping[str, tuple[str, ...]]:
    """Return the groups without a result after a record; `by_policy` is the state after it."""
    before = state.uncounted
    if isinstance(record, r.GroupAdmitted) and is_new_group(state, record):
        return {**before, record.group_id: arms_of(record)}
    if not isinstance(record, r.GroupReady | r.GroupDropped) or record.group_id not in before:
        return before
    # With several policies each reports its own result: the first one counts.
    left = [policy for policy in by_policy if record.group_id in policy.ledger.groups]
    if isinstance(record, r.GroupDropped) and left:
        return before
    return {name: arms for name, arms in before.items() if name != record.group_id}


def _begun_or_ended(
    state: State, record: Record, by_policy: Sequence[PolicyState]
) -> AdmittedGroup | None:
    """Return the training group that a record admits or gives its first result.

    `by_policy` is the state after the record.
    """
    if not isinstance(record, r.GroupAdmitted | r.GroupReady):
        return None
    if isinstance(record, r.GroupAdmitted):
        counts = is_new_group(state, record)
    else:
        counts = record.group_id in state.uncounted
    groups = [policy.ledger.groups.get(record.group_id) for policy in by_policy]
    trained = (group for group in groups if group is not None and group.purpose == TRAIN)
    return next(trained, None) if counts else None


def _versions_shown(
    before: Mapping[str, ShownVersions], record: Record
) -> Mapping[str, ShownVersions]:
    after = {name: past.apply(shown, record, name) for name, shown in before.items()}
    return after if any(after[name] is not shown for name, shown in before.items()) else before


def _serving(state: State, record: Record, by_policy: Sequence[PolicyState]) -> ServingProcesses:
    now = serving.apply(state.serving, record, state.served)
    if now is state.serving:
        return now
    groups = [group for policy in by_policy for group in policy.ledger.groups.values()]
    return now.without(min((group.admitted_ms for group in groups), default=NEVER_MS))


def _by_policy(state: State, record: Record) -> tuple[PolicyState, ...]:
    worker = None
    if isinstance(record, r.WorkerUsage | r.GenerationResumed):
        worker = state.workers.get(record.worker)
    names = concerned(state.policies, record, worker.policy if worker is not None else "")
    named = getattr(record, "policy", "") or state.policies[0]
    alone = state.alone
    changed = False
    after = []
    for name, before in zip(state.policies, state.by_policy, strict=True):
        now = before
        if name in names:
            addressed = alone or name == named
            now = policy_state.apply(before, record, state.devices, addressed)
        changed = changed or now is not before
        after.append(now)
    return tuple(after) if changed else state.by_policy


def to_json(state: State) -> bytes:
    """Return the state as JSON."""
    return _adapter().dump_json(_Stored(form=_form(), state=state))


def from_json(data: bytes) -> State | None:
    """Return the state that `to_json` wrote, or None if that release had a different `State`."""
    try:
        stored = _adapter().validate_json(data)
    except ValidationError:
        return None
    return stored.state if stored.form == _form() else None


def _own_fields(state: State, record: Record) -> State:
    """Return the state after a record, without the parts that have their own fold."""
    match record:
        case r.SchedulerClaimed() if record.epoch > state.epoch:
            return replace(
                state, epoch=record.epoch, scheduler=record.scheduler, claimed_ms=record.at_ms
            )
        case r.WorkerJoined():
            devices = {**state.devices, record.worker: device_count(record)}
            return replace(state, devices=devices)
        case r.RoleAssigned():
            newest = max(state.newest_assignment, record.assignment)
            gang = max(state.newest_gang, record.gang_epoch)
            return replace(state, newest_assignment=newest, newest_gang=gang)
        case r.ProgressStalled():
            return replace(state, stalled={**state.stalled, record.what: record.since_ms})
    return state


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stored:
    form: str
    state: State


@cache
def _adapter() -> TypeAdapter[_Stored]:
    return TypeAdapter(_Stored)


@cache
def _form() -> str:
    """Return a hash over `State`'s form, which changes when a release changes it."""
    return form_of(_adapter().json_schema())


def form_of(schema: Mapping[str, object]) -> str:
    """Return a hash over a JSON schema, without the docstrings that pydantic writes into it."""
    text = json.dumps(schema, sort_keys=True)
    bare = json.loads(text, object_hook=_without_docstring)
    return sha256(json.dumps(bare).encode()).hexdigest()


def _without_docstring(part: dict[str, object]) -> dict[str, object]:
    # A field that is called `description` has a schema there, not a text.
    return {
        name: value
        for name, value in part.items()
        if name != "description" or not isinstance(value, str)
    }
