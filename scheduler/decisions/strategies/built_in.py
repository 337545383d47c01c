"""The built-in strategies: pure functions from a snapshot to each worker's wanted role.

`docs/scheduling/strategies.md` compares them. Named in `registry.py`.
"""

from collections.abc import Iterable

from seamlessflow.scheduler.decisions.snapshot import Snapshot, WorkerView
from seamlessflow.scheduler.decisions.speeds import Speed, learned_speeds
from seamlessflow.scheduler.decisions.strategies.choice import shortest_step
from seamlessflow.scheduler.decisions.strategies.wanted import (
    BOTH,
    Wanted,
    device_sum,
    enough,
    form_gang,
    preference,
    roll_out,
    train,
)
from seamlessflow.scheduler.state.accounts.closed_form import StepWork


def colocated(snapshot: Snapshot) -> list[Wanted]:
    """Want one role for all workers with both tags: training if a batch is ready, else rollout."""
    able = [worker for worker in snapshot.workers if worker.tags >= BOTH]
    gang = form_gang(snapshot, able) if snapshot.batch else frozenset()
    return _training(snapshot, gang, able)


def disaggregated(snapshot: Snapshot) -> list[Wanted]:
    """Want one role for good; as many workers with both tags train as the gang needs.

    With lag 0, rollout and training take turns; with lag 1, rollout is one step ahead.
    """
    only_train = [worker for worker in snapshot.workers if worker.tags == {"train"}]
    both = sorted(
        (worker for worker in snapshot.workers if worker.tags >= BOTH),
        # Workers that train already come first, so that measured speeds move no worker.
        key=lambda worker: (worker.role != "train", -worker.ratio, worker.name),
    )
    size = snapshot.gang_size
    chosen = both if size is None else enough(both, size - device_sum(only_train))
    gang = form_gang(snapshot, [*only_train, *chosen])
    others = [
        worker for worker in snapshot.workers if "rollout" in worker.tags and worker not in chosen
    ]
    return [*train(snapshot, gang, "trains for good"), *roll_out(snapshot, others, gang)]


def multiplexed(snapshot: Snapshot) -> list[Wanted]:
    """Want rollout from workers with only that tag; the others train when a batch is ready."""
    gang = _all_that_train(snapshot) if snapshot.batch else frozenset()
    return _training(snapshot, gang, snapshot.workers)


def bidirectional(snapshot: Snapshot) -> list[Wanted]:
    """Want training by a gang as large as pays, when a batch is ready.

    The gang has at least `gang_size` devices, or one worker. Each side helps the other if that
    pays. As in `multiplexed`, workers that train roll out between steps. Rollout workers with the
    tag `train` help a step if that saves more predicted time than their switches take. A gang is
    fixed when its step begins, so helpers are chosen then, not during the step.
    """
    costs = snapshot.costs
    if not snapshot.batch:
        return _training(snapshot, frozenset(), snapshot.workers)
    if costs.train is None or costs.rollout is None:
        return _training(snapshot, _least(snapshot), snapshot.workers)
    # In device time all devices are alike; the roofline decides which ones should train.
    speeds = {worker.name: Speed(1.0, worker.devices, worker.ratio) for worker in snapshot.workers}
    return shortest_step(snapshot, speeds, StepWork(rollout=costs.rollout, train=costs.train))


def adaptive(snapshot: Snapshot) -> list[Wanted]:
    """Want training by the gang with the shortest step when a batch is ready.

    Measured speeds decide. Before any step, all workers that can train should train.
    """
    rates = snapshot.rates
    if not snapshot.batch:
        return _training(snapshot, frozenset(), snapshot.workers)
    if not rates.gangs or not rates.sampled or rates.batch_tokens == 0:
        return _training(snapshot, _all_that_train(snapshot), snapshot.workers)
    sampled = rates.step_tokens or rates.batch_tokens
    work = StepWork(rollout=sampled, train=rates.batch_tokens)
    modelled = {worker.name: worker.modelled for worker in snapshot.workers}
    devices = {worker.name: worker.devices for worker in snapshot.workers}
    return shortest_step(snapshot, learned_speeds(modelled, devices, rates), work)


def _training(
    snapshot: Snapshot, gang: frozenset[str], workers: Iterable[WorkerView]
) -> list[Wanted]:
    """Want training by the gang, which may be empty, and rollout by the other workers."""
    return [*train(snapshot, gang, "a batch is ready"), *roll_out(snapshot, workers, gang)]


def _all_that_train(snapshot: Snapshot) -> frozenset[str]:
    return form_gang(snapshot, [worker for worker in snapshot.workers if "train" in worker.tags])


def _least(snapshot: Snapshot) -> frozenset[str]:
    """Return the smallest gang, for the time before a step was measured."""
    able = sorted((worker for worker in snapshot.workers if "train" in worker.able), key=preference)
    if device_sum(able) < (snapshot.gang_size or 1):
        return frozenset()
    if snapshot.gang and snapshot.gang <= {worker.name for worker in able}:
        return snapshot.gang
    return frozenset(worker.name for worker in enough(able, snapshot.gang_size or 1))
