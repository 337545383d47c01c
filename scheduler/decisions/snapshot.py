"""A snapshot: a strategy's inputs at one moment (workers, batch, gang, groups, mean costs).

`snapshot` makes it from the folds of `control` and `fleet`; tests make their own. The record
`SchedulerSnapshot` is something else: the state, stored for the next scheduler.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import NamedTuple

from seamlessflow.scheduler.decisions.speeds import attainable, ratios
from seamlessflow.scheduler.settings import SchedulerSettings, milliseconds
from seamlessflow.scheduler.state.costs import Costs
from seamlessflow.scheduler.state.fleet import Fleet
from seamlessflow.scheduler.state.policy_state import PolicyState
from seamlessflow.scheduler.state.rates import LearnedRates
from seamlessflow.scheduler.state.state import State
from seamlessflow.scheduler.state.steps import Gang
from seamlessflow.scheduler.state.workers import NO_ROLE, RoleFailures, Worker, Workers

FIRST_RETRY_MS = 1_000
LAST_RETRY_MS = 60_000
ROLES = ("train", "rollout")


class WorkerView(NamedTuple):
    """A worker as a strategy sees it. A named tuple: each decision makes one for each worker."""

    name: str
    tags: frozenset[str]
    """Roles that its processes were started for."""
    able: frozenset[str]
    """Roles it could take now: the process lives, and has not just failed to take the role."""
    role: str = NO_ROLE
    """The role it has or is taking."""
    acquired_ms: int | None = None
    """When it got the role, or None while it is taking it."""
    ratio: float = 1.0
    """Speed in training over speed in rollout."""
    devices: int = 1
    """Its device count."""
    modelled: Mapping[str, float] = MappingProxyType({})
    """Each device's speed by role, from the roofline model only (flop/s)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeanCosts:
    """Measured means in milliseconds; None before the first measurement.

    `train`, `rollout` and `load` are device time, all others wall time.
    """

    step: float | None = None
    train: float | None = None
    rollout: float | None = None
    load: float | None = None
    group: float | None = None
    batch: float | None = None
    """Time from one announced batch to the next."""
    to_train: float | None = None
    to_rollout: float | None = None

    @property
    def round_trip(self) -> float | None:
        """Cost of a switch to rollout and back, or None if either was not measured."""
        if self.to_train is None or self.to_rollout is None:
            return None
        return self.to_train + self.to_rollout


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """The system at `now_ms`."""

    now_ms: int
    workers: tuple[WorkerView, ...]
    batch: bool = False
    """True if a batch waits for a gang or is being trained."""
    under_way: bool = False
    """True while the current gang trains that batch."""
    gang: frozenset[str] = frozenset()
    """The current gang's members; empty as soon as one of them is lost or has left it."""
    last_gang: frozenset[str] = frozenset()
    """Members of the newest assigned gang, including lost ones."""
    gang_size: int | None = None
    """Number of devices that train together, or None for all that can."""
    helpers: int = 0
    """Number of further devices that may train if that pays."""
    missing: int = 0
    """Number of ready groups that the next batch still lacks."""
    running: int = 1
    """Number of groups being rolled out, evaluations included."""
    over: bool = False
    """True if all the run's steps are trained, so that no batch follows."""
    min_dwell_ms: int = 0
    ended_ms: int = 0
    """When the last step ended."""
    batch_ms: int = 0
    """When the last batch was announced."""
    lag: int = 1
    """Number of optimizer steps by which rollout may be ahead."""
    costs: MeanCosts = MeanCosts()
    rates: LearnedRates = field(default_factory=LearnedRates)

    # Cached: decisions about each of a thousand workers read them.
    @cached_property
    def present(self) -> dict[str, WorkerView]:
        """Workers by name."""
        return {worker.name: worker for worker in self.workers}

    @cached_property
    def rolling(self) -> int:
        """Number of workers that have or take the rollout role."""
        return sum(worker.role == "rollout" for worker in self.workers)

    @cached_property
    def rolling_devices(self) -> int:
        """Number of devices that can roll out."""
        return sum(worker.devices for worker in self.workers if "rollout" in worker.tags)

    @cached_property
    def leaving_devices(self) -> int:
        """Number of those devices that train now."""
        return sum(
            worker.devices
            for worker in self.workers
            if worker.role == "train" and "rollout" in worker.tags
        )


def snapshot(
    state: State,
    policy: PolicyState,
    fleet: Fleet,
    settings: SchedulerSettings,
    now_ms: int,
    names: Collection[str] | None = None,
) -> Snapshot:
    """Return a policy's snapshot at `now_ms`, with the named workers, or all for None."""
    ledger = policy.ledger
    steps = policy.steps
    run = settings.run
    weights = steps.version is not None or run.policy in fleet.policies
    modelled = {name: attainable(fleet.hardware(name)) for name in state.workers}
    over_rollout = ratios(modelled, _measured(state.workers, policy.costs))
    return Snapshot(
        now_ms=now_ms,
        workers=tuple(
            _view(
                name,
                worker,
                over_rollout[name],
                modelled[name],
                weights,
                now_ms,
                policy=None if names is None else run.policy,
            )
            for name, worker in sorted(state.workers.items())
            if names is None or name in names
        ),
        batch=steps.waiting is not None,
        under_way=steps.under_way,
        gang=_gang(state.workers, steps.gang),
        last_gang=frozenset(steps.gang.members),
        gang_size=settings.scheduler.gang_size,
        helpers=settings.scheduler.helpers,
        missing=max(0, run.groups_per_step - ledger.ready),
        # Without issuing tasks the scheduler does not know the groups: some may always run.
        running=(
            ledger.running + ledger.exploring + ledger.evaluating if settings.pacing.issues else 1
        ),
        over=steps.trained >= run.steps,
        min_dwell_ms=milliseconds(settings.scheduler.min_dwell_s),
        ended_ms=steps.ended_ms,
        batch_ms=policy.costs.batch_ms or 0,
        lag=run.lag,
        costs=_mean_costs(policy.costs),
        rates=policy.rates,
    )


def retry_ms(failures: RoleFailures | None) -> int:
    """Return the time before which a role that was not acquired is not assigned again.

    The delay doubles with each failure in a row.
    """
    if failures is None:
        return 0
    return failures.at_ms + min(LAST_RETRY_MS, FIRST_RETRY_MS << min(failures.count - 1, 10))


def _view(
    name: str,
    worker: Worker,
    ratio: float,
    modelled: Mapping[str, float],
    weights: bool,
    now_ms: int,
    policy: str | None,
) -> WorkerView:
    assignment = worker.assignment
    # Rollout without weights could not be acquired and would only time out.
    able = worker.roles if weights else worker.roles - {"rollout"}
    if worker.failures or (assignment is not None and assignment.lapsed):
        able = frozenset(role for role in able if _free_for(worker, role, now_ms))
    # A shared worker's role for another policy does not count here.
    counted = worker.policy in ("", policy) or policy is None
    return WorkerView(
        name=name,
        tags=worker.tags,
        able=able,
        role=worker.role if counted else NO_ROLE,
        acquired_ms=None
        if assignment is None or assignment.lapsed or not counted
        else assignment.acquired_ms,
        ratio=ratio,
        devices=worker.devices,
        modelled=modelled,
    )


def _free_for(worker: Worker, role: str, now_ms: int) -> bool:
    """Return False for a role that has just failed, or while the other role's process is late."""
    assignment = worker.assignment
    # A process that is late may still be taking the device.
    late = assignment is not None and assignment.lapsed and assignment.role != role
    return not late and retry_ms(worker.failures.get(role)) <= now_ms


def _gang(workers: Workers, gang: Gang) -> frozenset[str]:
    """Return the newest gang's members, or none if one is lost, timed out or reassigned."""
    for name, number in gang.members.items():
        worker = workers.get(name)
        if worker is None or worker.role != "train" or worker.assignment is None:
            return frozenset()
        # The same role under a newer assignment belongs to another gang.
        if worker.assignment.number != number:
            return frozenset()
    return frozenset(gang.members)


def _measured(workers: Workers, costs: Costs) -> dict[str, dict[str, float]]:
    """Return each device's measured speed in tokens/s, by role and worker."""
    return {
        role: {
            name: speed / workers[name].devices
            for name, speed in costs.speed_means(role).items()
            if name in workers
        }
        for role in ROLES
    }


def _mean_costs(costs: Costs) -> MeanCosts:
    return MeanCosts(
        step=costs.step.mean,
        train=costs.train.mean,
        rollout=costs.rollout.mean,
        load=costs.load.mean,
        group=costs.group.mean,
        batch=costs.batch.mean,
        to_train=costs.switch_mean("train"),
        to_rollout=costs.switch_mean("rollout"),
    )
