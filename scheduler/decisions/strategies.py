"""Strategies: pure functions from a snapshot to the role that each worker should have.

- `colocated`: all workers have both tags; all train when a batch is ready, else all roll out.
- `disaggregated`: each worker has one role for good.
- `multiplexed`: workers with the tag `rollout` alone always roll out; those with both tags train
  when a batch is ready and roll out otherwise.

A strategy returns only the workers whose role matters now; the others stay as they are. A gang is
wanted as a whole or not at all. Called by `scheduler/decisions/decide.py`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
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
    """True if nothing waits for the change: it is made only if it pays (`gates.py`)."""
    figures: Mapping[str, float] = field(default_factory=dict)
    """Figures behind the reason, by name."""


Strategy = Callable[[Snapshot], Sequence[Wanted]]


class UnknownStrategy(SeamlessFlowError):
    """No strategy has this name."""

    def __init__(self, name: str, reason: str) -> None:
        self.name = name
        self.reason = reason
        super().__init__(
            f"no strategy {name!r} ({', '.join(STRATEGIES)}, module:function): {reason}"
        )


def colocated(snapshot: Snapshot) -> list[Wanted]:
    """Want the same role for all workers."""
    able = [worker for worker in snapshot.workers if worker.tags >= BOTH]
    gang = form_gang(snapshot, able) if snapshot.batch else frozenset()
    return [*_train(snapshot, gang, "a batch is ready"), *_roll_out(snapshot, able, gang)]


def disaggregated(snapshot: Snapshot) -> list[Wanted]:
    """Want one role for good; of the workers with both tags, as many train as the gang needs."""
    only_train = [worker for worker in snapshot.workers if worker.tags == {"train"}]
    both = sorted(
        (worker for worker in snapshot.workers if worker.tags >= BOTH),
        # Those that train already come first, so that measured speeds do not move anyone.
        key=lambda worker: (worker.role != "train", -worker.ratio, worker.name),
    )
    size = snapshot.gang_size
    chosen = both if size is None else _enough(both, size - _devices(only_train))
    gang = form_gang(snapshot, [*only_train, *chosen])
    others = [
        worker for worker in snapshot.workers if "rollout" in worker.tags and worker not in chosen
    ]
    return [*_train(snapshot, gang, "trains for good"), *_roll_out(snapshot, others, gang)]


def multiplexed(snapshot: Snapshot) -> list[Wanted]:
    """Want rollout of workers without the tag train; the others train when a batch is ready."""
    trainers = [worker for worker in snapshot.workers if "train" in worker.tags]
    gang = form_gang(snapshot, trainers) if snapshot.batch else frozenset()
    rollers = [worker for worker in snapshot.workers if "rollout" in worker.tags]
    return [*_train(snapshot, gang, "a batch is ready"), *_roll_out(snapshot, rollers, gang)]


STRATEGIES: Mapping[str, Strategy] = {
    "colocated": colocated,
    "disaggregated": disaggregated,
    "multiplexed": multiplexed,
}


def named(name: str) -> Strategy:
    """Return the strategy of that name, or the function of a name `module:function`.

    Raises `UnknownStrategy`.
    """
    if name in STRATEGIES:
        return STRATEGIES[name]
    module, _, function = name.partition(":")
    try:
        found = getattr(import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise UnknownStrategy(name, str(error)) from error
    if not callable(found):
        raise UnknownStrategy(name, "not callable")
    strategy: Strategy = found
    return strategy


def form_gang(snapshot: Snapshot, candidates: Iterable[WorkerView]) -> frozenset[str]:
    """Return the names of the workers that train together; empty if they are too few.

    A gang that trains, or has the right size, stays as it is. A new one is made of the candidates
    with the highest ratio of training speed to rollout speed.
    """
    able = [worker for worker in candidates if "train" in worker.able]
    total = _devices(able)
    least = snapshot.gang_size or total
    if total < least or not able:
        return frozenset()
    most = max(least, min(least + snapshot.helpers, total))
    # Those that hold training come first among equals: they need no switch.
    best = sorted(able, key=lambda worker: (-worker.ratio, worker.role != "train", worker.name))
    formed = _with_helpers(snapshot, _enough(best, least), best, most)
    held = [worker for worker in able if worker.name in snapshot.gang]
    # Without a fixed size a gang of all grows by new workers, but only between steps. Workers that
    # do not divide the size make a larger gang.
    fits = snapshot.under_way or least <= _devices(held) <= max(most, _devices(formed))
    kept = bool(snapshot.gang) and len(held) == len(snapshot.gang) and fits
    return snapshot.gang if kept else frozenset(worker.name for worker in formed)


def _enough(best: Sequence[WorkerView], least: int) -> list[WorkerView]:
    """Return the first workers that have `least` devices together, or as few more as possible
    without another order.
    """
    gang: list[WorkerView] = []
    size = 0
    for worker in best:
        if size + worker.devices <= least:
            gang.append(worker)
            size += worker.devices
    chosen = {worker.name for worker in gang}
    for worker in best:
        if size < least and worker.name not in chosen:
            gang.append(worker)
            size += worker.devices
    return gang


def _with_helpers(
    snapshot: Snapshot, gang: list[WorkerView], best: Sequence[WorkerView], most: int
) -> list[WorkerView]:
    """Return the gang and the further workers that are worth their switches."""
    size, chosen = _devices(gang), {worker.name for worker in gang}
    for worker in best:
        fits = size + worker.devices <= most and worker.name not in chosen
        if fits and gates.helper_pays(snapshot, size, worker.devices):
            gang, size = [*gang, worker], size + worker.devices
    return gang


def _devices(workers: Iterable[WorkerView]) -> int:
    return sum(worker.devices for worker in workers)


def _train(snapshot: Snapshot, gang: Iterable[str], reason: str) -> list[Wanted]:
    present = snapshot.present
    return [
        Wanted(
            worker=name,
            role="train",
            reason=reason,
            figures={"train_over_rollout_speed": present[name].ratio},
        )
        for name in sorted(gang)
    ]


def _roll_out(
    snapshot: Snapshot, workers: Iterable[WorkerView], gang: frozenset[str]
) -> list[Wanted]:
    """Want rollout of all able workers outside the gang; optional for those that hold training."""
    free = [worker for worker in workers if worker.name not in gang]
    # A batch waits but too few can train: nothing is gained by keeping workers in training.
    stuck = snapshot.batch and not gang
    return [
        Wanted(
            worker=worker.name,
            role="rollout",
            reason=_reason(worker, stuck),
            optional=worker.role == "train" and not stuck,
            figures=gates.figures(snapshot, worker) if worker.role == "train" else {},
        )
        for worker in free
        if "rollout" in worker.able
    ]


def _reason(worker: WorkerView, stuck: bool) -> str:
    if "train" not in worker.tags:
        return "only rolls out"
    return "no gang can be formed" if stuck else "no batch to train"
