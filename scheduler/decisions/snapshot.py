"""What a policy sees: workers, batch, gang, groups and measured costs at one moment, as data.

Made by `snapshot` from the folds of `control` and `fleet`; tests make their own.
"""

from dataclasses import dataclass

from scheduler.decisions import roofline
from scheduler.settings import SchedulerSettings, milliseconds
from scheduler.state.fleet import Fleet
from scheduler.state.state import State
from scheduler.state.workers import NO_ROLE, Failures, Worker

FIRST_RETRY_MS = 1_000
LAST_RETRY_MS = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerView:
    """A worker as a policy sees it."""

    name: str
    tags: frozenset[str]
    """Roles it was started for."""
    able: frozenset[str]
    """Those it could take now: its process lives and did not just fail to."""
    role: str = NO_ROLE
    """The role it has or is about to have."""
    acquired_ms: int | None = None
    """Since when it has it; None before."""
    ratio: float = 1.0
    """Speed in training over speed in rollout."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """Measured means in milliseconds; None before the first measurement."""

    step: float | None = None
    train: float | None = None
    rollout: float | None = None
    group: float | None = None
    to_train: float | None = None
    to_rollout: float | None = None

    @property
    def round_trip(self) -> float | None:
        """Going to rollout and back."""
        if self.to_train is None or self.to_rollout is None:
            return None
        return self.to_train + self.to_rollout


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """One moment."""

    now_ms: int
    workers: tuple[WorkerView, ...]
    batch: bool = False
    """A batch waits for the gang or is being trained."""
    under_way: bool = False
    """The present gang is training it."""
    gang: frozenset[str] = frozenset()
    """The present gang, as long as all its members are in it and live."""
    gang_size: int | None = None
    """Workers that train together; None: all that can."""
    helpers: int = 0
    """So many more may train, where that pays."""
    missing: int = 0
    """Ready groups that the next batch lacks."""
    running: int = 1
    """Groups that are being rolled out."""
    min_dwell_ms: int = 0
    ended_ms: int = 0
    """When the last step ended."""
    prices: Prices = Prices()

    @property
    def present(self) -> dict[str, WorkerView]:
        """The workers by name."""
        return {worker.name: worker for worker in self.workers}


def snapshot(state: State, fleet: Fleet, settings: SchedulerSettings, now_ms: int) -> Snapshot:
    """What there is at `now_ms`."""
    ledger, steps, run = state.ledger, state.steps, settings.run
    weights = steps.version is not None or run.policy in fleet.policies
    ratios = _ratios(state, fleet)
    return Snapshot(
        now_ms=now_ms,
        workers=tuple(
            _view(name, worker, ratios[name], weights, now_ms)
            for name, worker in sorted(state.workers.items())
        ),
        batch=steps.waiting is not None,
        under_way=steps.under_way,
        gang=_gang(state),
        gang_size=settings.scheduler.gang_size,
        helpers=settings.scheduler.helpers,
        missing=max(0, run.groups_per_step - ledger.ready),
        # Sessions that come from elsewhere are not in the ledger: there may always be some.
        running=ledger.running if settings.pacing.tasks else 1,
        min_dwell_ms=milliseconds(settings.scheduler.min_dwell_s),
        ended_ms=steps.ended_ms,
        prices=_prices(state),
    )


def retry_ms(failures: Failures | None) -> int:
    """Before when a role that was not acquired is not given again; doubles with each time."""
    if failures is None:
        return 0
    return failures.at_ms + min(LAST_RETRY_MS, FIRST_RETRY_MS << min(failures.count - 1, 10))


def _view(name: str, worker: Worker, ratio: float, weights: bool, now_ms: int) -> WorkerView:
    able = {
        role
        for role in worker.processes
        if role in worker.tags
        and retry_ms(worker.failures.get(role)) <= now_ms
        and (weights or role != "rollout")
    }
    given = worker.assignment
    return WorkerView(
        name=name,
        tags=worker.tags,
        able=frozenset(able),
        role=worker.role,
        acquired_ms=None if given is None or given.lapsed else given.acquired_ms,
        ratio=ratio,
    )


def _gang(state: State) -> frozenset[str]:
    """Empty as soon as one member is lost, timed out or went elsewhere."""
    for name, number in state.steps.gang.members.items():
        worker = state.workers.get(name)
        if worker is None or worker.role != "train" or worker.assignment is None:
            return frozenset()
        if worker.assignment.number != number:
            return frozenset()
    return frozenset(state.steps.gang.members)


def _ratios(state: State, fleet: Fleet) -> dict[str, float]:
    speeds = {}
    for name in state.workers:
        hardware = fleet.hardware(name)
        measured = {role: state.costs.speed_mean(role, name) for role in ("train", "rollout")}
        speeds[name] = roofline.Speeds(
            {role: roofline.attainable(hardware, role) for role in ("train", "rollout")},
            {role: speed for role, speed in measured.items() if speed is not None},
        )
    return roofline.ratios(speeds)


def _prices(state: State) -> Prices:
    costs = state.costs
    return Prices(
        step=costs.step.mean,
        train=costs.train.mean,
        rollout=costs.rollout.mean,
        group=costs.group.mean,
        to_train=costs.switch_mean("train"),
        to_rollout=costs.switch_mean("rollout"),
    )
