"""One policy's part in the state: its groups, steps, costs and rates.

A pure fold over `control`. Each of a run's policies has one, as if it were the only policy. Its
trainer's records concern only this policy; groups are admitted for all policies. Called by
`scheduler/state/state.py`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from seamlessflow.scheduler.state import costs, ledger, rates, steps
from seamlessflow.scheduler.state.costs import Costs
from seamlessflow.scheduler.state.ledger import EVAL, TRAIN, Ledger
from seamlessflow.scheduler.state.rates import LearnedRates
from seamlessflow.scheduler.state.steps import TrainingProgress
from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Record

_PolicyRecord = (
    r.GroupReady
    | r.GroupDropped
    | r.GroupConsumed
    | r.SampleFailed
    | r.BatchReady
    | r.StepStarted
    | r.StepCommitted
    | r.StepCompleted
    | r.StepSkipped
    | r.WeightsPublished
    | r.RoleAssigned
    | r.PlanWarning
    | r.RunFinished
)
"""Records that concern the policy that they name; an older release named none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyState:
    """Everything on `control` that is of one policy."""

    ledger: Ledger = field(default_factory=Ledger)
    steps: TrainingProgress = field(default_factory=TrainingProgress)
    costs: Costs = field(default_factory=Costs)
    rates: LearnedRates = field(default_factory=LearnedRates)
    warned: Mapping[str, float] = field(default_factory=dict)
    """The last warning's predicted idle share, by code."""
    rollouts_began: bool = False
    finished_steps: int = 0
    """Steps in the newest `RunFinished`."""


def concerned(policies: Sequence[str], record: Record, served: str) -> Sequence[str]:
    """Return the run's policies whose state a record may change, in the run's order.

    `served`: the policy that the record's worker serves, if it has a worker. A single policy
    without a name takes every record as its own, whatever policy it names.
    """
    if not policies[0]:
        return policies
    if isinstance(record, _PolicyRecord):
        named = record.policy
    elif isinstance(record, r.WorkerUsage | r.GenerationResumed):
        named = served
    elif isinstance(record, r.GroupAdmitted) and record.purpose == EVAL:
        named = ""  # evaluations follow the first policy
    else:
        return policies
    named = named or policies[0]
    return (named,) if named in policies else ()


def apply(
    state: PolicyState, record: Record, devices: Mapping[str, int], addressed: bool
) -> PolicyState:
    """Return the state after a record; `addressed` is False if it names another policy.

    `devices`: device count by worker, including workers that have left.
    """
    measures = _measures_training(state, record)
    # Sessions with a role belong to one policy, sessions without one to all.
    holds = addressed or not (isinstance(record, r.GroupAdmitted) and record.role)
    parts = {
        "ledger": ledger.apply(state.ledger, record, holds),
        "steps": steps.apply(state.steps, record),
        "costs": costs.apply(state.costs, record, devices) if measures else state.costs,
        "rates": rates.apply(state.rates, record, devices),
    }
    changed = {name: part for name, part in parts.items() if part is not getattr(state, name)}
    after = _own_fields(state, record) if addressed else state
    return replace(after, **changed) if changed else after  # type: ignore[arg-type]


def _own_fields(state: PolicyState, record: Record) -> PolicyState:
    match record:
        case r.RoleAcquired(role="rollout"):
            return replace(state, rollouts_began=True)
        case r.PlanWarning():
            warned = {**state.warned, record.code: record.predicted_idle_share}
            return replace(state, warned=warned)
        case r.RunFinished():
            return replace(state, finished_steps=record.steps)
    return state


def _measures_training(state: PolicyState, record: Record) -> bool:
    """Return False for ready groups that this scheduler did not admit for training.

    They would distort the rate at which groups get ready.
    """
    if not isinstance(record, r.GroupReady):
        return True
    group = state.ledger.groups.get(record.group_id)
    return group is not None and group.purpose == TRAIN
