"""The state of the system as one value: the pure fold of `control`.

`apply` expects the records in log order and ignores decisions of an older epoch behind a newer
claim. The same records give the same state in every process, so the state can be stored (`to_json`)
and the next scheduler continues from there. Called by `scheduler/journal.py`, the simulator and
tests.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from hashlib import sha256

from pydantic import TypeAdapter, ValidationError

from scheduler.state import costs, groups, rates, steps, workers
from scheduler.state.costs import Costs
from scheduler.state.ledger import EVAL, Ledger
from scheduler.state.rates import LearnedRates
from scheduler.state.steps import TrainingProgress
from scheduler.state.workers import Worker
from schemas import records as r
from schemas.records import Record

Decision = (
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
    """Name of the scheduler whose claim is the first of the epoch."""
    claimed_ms: int = 0
    workers: Mapping[str, Worker] = field(default_factory=dict)
    newest_assignment: int = -1
    ledger: Ledger = field(default_factory=Ledger)
    steps: TrainingProgress = field(default_factory=TrainingProgress)
    costs: Costs = field(default_factory=Costs)
    rates: LearnedRates = field(default_factory=LearnedRates)
    warned: Mapping[str, float] = field(default_factory=dict)
    """Predicted idle share of the last warning, by code."""
    stalled: Mapping[str, int] = field(default_factory=dict)
    """Begin of each stall that was reported, by its kind."""
    rollouts_began: bool = False
    finished_steps: int = 0
    """Steps of the newest `RunFinished`."""


def apply(state: State, record: Record) -> State:
    """Return the state after the next record of `control`: the same one if nothing changes."""
    if isinstance(record, Decision) and record.epoch < state.epoch:
        return state
    own = _own_fields(state, record)
    measures = _measures_training(state, record)
    parts = {
        "workers": workers.apply(state.workers, record),
        "ledger": groups.apply(state.ledger, record),
        "steps": steps.apply(state.steps, record),
        "costs": costs.apply(state.costs, record) if measures else state.costs,
        "rates": rates.apply(state.rates, record),
    }
    changed = {name: part for name, part in parts.items() if part is not getattr(state, name)}
    return replace(own, **changed) if changed else own  # type: ignore[arg-type]


def _measures_training(state: State, record: Record) -> bool:
    """Return False for ready groups that this scheduler did not admit for training.

    Evaluations and groups from elsewhere would distort the rate at which groups get ready.
    """
    if not isinstance(record, r.GroupReady):
        return True
    group = state.ledger.groups.get(record.group_id)
    return group is not None and group.purpose != EVAL


def to_json(state: State) -> bytes:
    """Return the state as JSON."""
    return _adapter().dump_json(_Stored(form=_form(), state=state))


def from_json(data: bytes) -> State | None:
    """Return the state that `to_json` wrote, or None if a release with another `State` wrote it."""
    try:
        stored = _adapter().validate_json(data)
    except ValidationError:
        return None
    return stored.state if stored.form == _form() else None


def _own_fields(state: State, record: Record) -> State:
    """Return the state after a record, without the parts that have a fold of their own."""
    match record:
        case r.SchedulerClaimed() if record.epoch > state.epoch:
            return replace(
                state, epoch=record.epoch, scheduler=record.scheduler, claimed_ms=record.at_ms
            )
        case r.RoleAssigned():
            newest = max(state.newest_assignment, record.assignment)
            return replace(state, newest_assignment=newest)
        case r.RoleAcquired(role="rollout"):
            return replace(state, rollouts_began=True)
        case r.PlanWarning():
            warned = {**state.warned, record.code: record.predicted_idle_share}
            return replace(state, warned=warned)
        case r.ProgressStalled():
            return replace(state, stalled={**state.stalled, record.what: record.since_ms})
        case r.RunFinished():
            return replace(state, finished_steps=record.steps)
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
    """Return a hash of the form of `State`, which changes when a release changes it."""
    return sha256(json.dumps(_adapter().json_schema(), sort_keys=True).encode()).hexdigest()
