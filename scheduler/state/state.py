"""All that `control` says, as one value: a pure fold.

`apply` takes the records in log order. Decisions of an older scheduler behind a newer claim are
ignored. The state of a log prefix is the same wherever it is computed, so it can be stored
(`to_json`) and a successor goes on from there. Called by `scheduler/controller.py`, the simulator
and tests.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from hashlib import sha256

from pydantic import TypeAdapter, ValidationError

from scheduler.state import costs, groups, steps, workers
from scheduler.state.costs import Costs
from scheduler.state.ledger import Ledger
from scheduler.state.steps import Steps
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
"""What only the scheduler writes, under its epoch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """What happened so far, as far as decisions depend on it."""

    epoch: int = 0
    scheduler: str = ""
    """Who claimed the epoch first."""
    claimed_ms: int = 0
    workers: Mapping[str, Worker] = field(default_factory=dict)
    newest_assignment: int = -1
    ledger: Ledger = field(default_factory=Ledger)
    steps: Steps = field(default_factory=Steps)
    costs: Costs = field(default_factory=Costs)
    warned: Mapping[str, float] = field(default_factory=dict)
    """Predicted idle share of the last warning, by code."""
    stalled: Mapping[str, int] = field(default_factory=dict)
    """Since when something stood still when it was last reported, by what."""
    rollouts_began: bool = False
    finished_steps: int = 0
    """Steps of the newest `RunFinished`."""


def apply(state: State, record: Record) -> State:
    """The state after the next record of `control`."""
    if isinstance(record, Decision) and record.epoch < state.epoch:
        return state
    return replace(
        _noted(state, record),
        workers=workers.apply(state.workers, record),
        ledger=groups.apply(state.ledger, record),
        steps=steps.apply(state.steps, record),
        costs=costs.apply(state.costs, record) if _measures(state, record) else state.costs,
    )


def _measures(state: State, record: Record) -> bool:
    """Groups that nobody paced, such as evaluations from elsewhere, say nothing of training."""
    return not isinstance(record, r.GroupReady) or record.group_id in state.ledger.training


def to_json(state: State) -> bytes:
    """The state as JSON."""
    return _adapter().dump_json(_Stored(form=_form(), state=state))


def from_json(data: bytes) -> State | None:
    """The state that `to_json` wrote; None when a release with another form of it did."""
    try:
        stored = _adapter().validate_json(data)
    except ValidationError:
        return None
    return stored.state if stored.form == _form() else None


def _noted(state: State, record: Record) -> State:
    match record:
        case r.SchedulerClaimed() if record.epoch > state.epoch:
            return replace(
                state,
                epoch=record.epoch,
                scheduler=record.scheduler,
                claimed_ms=record.at_ms,
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
    return sha256(json.dumps(_adapter().json_schema(), sort_keys=True).encode()).hexdigest()
