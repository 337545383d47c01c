"""Which role each worker should have: pure functions of a snapshot, one for each way to run.

- `colocated`: all {rollout, train}; all train when a batch is ready, else all roll out.
- `disaggregated`: each worker one of the two; fixed.
- `multiplexed`: some {rollout}, some {rollout, train}; the first are never interrupted, the others
  train when a batch is ready and roll out otherwise.

A policy names only workers whose role matters now; the others stay as they are. A gang is wanted
as a whole or not at all. Called by `scheduler/decisions/assignments.py`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module

from infra.errors import SeamlessFlowError
from scheduler.decisions import gates
from scheduler.decisions.snapshot import Snapshot, WorkerView

BOTH = frozenset({"rollout", "train"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The role that a worker should have."""

    worker: str
    role: str
    reason: str
    optional: bool = False
    """Nothing waits for it: it happens only where it pays."""


Policy = Callable[[Snapshot], Sequence[Wanted]]


class UnknownPolicy(SeamlessFlowError):
    """No policy has this name."""

    def __init__(self, name: str, reason: str) -> None:
        self.name = name
        self.reason = reason
        super().__init__(f"no policy {name!r} ({', '.join(POLICIES)}, module:function): {reason}")


def colocated(snapshot: Snapshot) -> list[Wanted]:
    """All workers do the same."""
    able = [worker for worker in snapshot.workers if worker.tags >= BOTH]
    gang = form_gang(snapshot, able) if snapshot.batch else frozenset()
    return [*_train(gang, "a batch is ready"), *_roll_out(snapshot, able, gang)]


def disaggregated(snapshot: Snapshot) -> list[Wanted]:
    """A worker trains or rolls out for good; of those that can do both, a gang's worth trains."""
    only_train = [worker for worker in snapshot.workers if worker.tags == {"train"}]
    both = sorted(
        (worker for worker in snapshot.workers if worker.tags >= BOTH),
        key=lambda worker: (worker.role != "train", -worker.ratio, worker.name),
    )
    size = snapshot.gang_size
    chosen = both if size is None else both[: max(0, size - len(only_train))]
    gang = form_gang(snapshot, [*only_train, *chosen])
    others = [
        worker for worker in snapshot.workers if "rollout" in worker.tags and worker not in chosen
    ]
    return [*_train(gang, "trains for good"), *_roll_out(snapshot, others, gang)]


def multiplexed(snapshot: Snapshot) -> list[Wanted]:
    """Workers that can only roll out always do; the others train whenever a batch is ready."""
    trainers = [worker for worker in snapshot.workers if "train" in worker.tags]
    gang = form_gang(snapshot, trainers) if snapshot.batch else frozenset()
    rollers = [worker for worker in snapshot.workers if "rollout" in worker.tags]
    return [*_train(gang, "a batch is ready"), *_roll_out(snapshot, rollers, gang)]


POLICIES: Mapping[str, Policy] = {
    "colocated": colocated,
    "disaggregated": disaggregated,
    "multiplexed": multiplexed,
}


def named(name: str) -> Policy:
    """The policy of that name, or `module:function`. Raises `UnknownPolicy`."""
    if name in POLICIES:
        return POLICIES[name]
    module, _, function = name.partition(":")
    try:
        found = getattr(import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise UnknownPolicy(name, str(error)) from error
    if not callable(found):
        raise UnknownPolicy(name, "not callable")
    policy: Policy = found
    return policy


def form_gang(snapshot: Snapshot, candidates: Iterable[WorkerView]) -> frozenset[str]:
    """Who trains together: all or nobody. A gang that trains, or is big enough, stays as it is.

    Else those with the best ratio of training to rollout speed.
    """
    able = [worker for worker in candidates if "train" in worker.able]
    least = snapshot.gang_size or len(able)
    most = max(least, min(least + snapshot.helpers, len(able)))
    here = {worker.name for worker in able}
    fits = snapshot.under_way or least <= len(snapshot.gang) <= most
    if snapshot.gang and snapshot.gang <= here and fits:
        return snapshot.gang
    if len(able) < least or not able:
        return frozenset()
    best = sorted(able, key=lambda worker: (-worker.ratio, worker.role != "train", worker.name))
    size = least
    while size < most and gates.helper_pays(snapshot, size):
        size += 1
    return frozenset(worker.name for worker in best[:size])


def _train(gang: Iterable[str], reason: str) -> list[Wanted]:
    return [Wanted(worker=name, role="train", reason=reason) for name in sorted(gang)]


def _roll_out(
    snapshot: Snapshot, workers: Iterable[WorkerView], gang: frozenset[str]
) -> list[Wanted]:
    """Everybody else, as far as they can; who sits in training without need may stay there."""
    free = [worker for worker in workers if worker.name not in gang]
    stuck = snapshot.batch and not gang
    return [
        Wanted(
            worker=worker.name,
            role="rollout",
            reason=_why(worker, stuck),
            optional=worker.role == "train" and not stuck,
        )
        for worker in free
        if "rollout" in worker.able
    ]


def _why(worker: WorkerView, stuck: bool) -> str:
    if "train" not in worker.tags:
        return "only rolls out"
    return "no gang can be formed" if stuck else "no batch to train"
