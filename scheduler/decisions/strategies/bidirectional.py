"""The strategy `bidirectional`: each side helps the other one where that pays. Pure.

As in `multiplexed`, workers that train roll out between steps. And rollout workers with the tag
`train` help a step: as many as make the predicted step shorter than their switches make it longer.
A gang is fixed when its step begins, so helpers are chosen then, not during the step.
"""

from seamlessflow.scheduler.decisions.snapshot import Snapshot
from seamlessflow.scheduler.decisions.strategies.choice import RoleWork, Speed, shortest_step
from seamlessflow.scheduler.decisions.strategies.gangs import device_sum, enough, preference
from seamlessflow.scheduler.decisions.strategies.wanted import Wanted, roll_out, train


def bidirectional(snapshot: Snapshot) -> list[Wanted]:
    """Want training of a gang as large as pays when a batch is ready; at least of `gang_size`
    devices, or one worker.
    """
    rollers = [worker for worker in snapshot.workers if "rollout" in worker.tags]
    if not snapshot.batch:
        return roll_out(snapshot, rollers, frozenset())
    costs = snapshot.costs
    if costs.train is None or costs.rollout is None:
        gang = _least(snapshot)
        return [*train(snapshot, gang, "a batch is ready"), *roll_out(snapshot, rollers, gang)]
    # In device time all devices are alike; the roofline says which ones should train.
    speeds = {worker.name: Speed(1.0, worker.devices, worker.ratio) for worker in snapshot.workers}
    return shortest_step(snapshot, speeds, RoleWork(costs.train, costs.rollout))


def _least(snapshot: Snapshot) -> frozenset[str]:
    """Return the smallest gang, before a step was measured."""
    able = sorted((worker for worker in snapshot.workers if "train" in worker.able), key=preference)
    if device_sum(able) < (snapshot.gang_size or 1):
        return frozenset()
    if snapshot.gang and snapshot.gang <= {worker.name for worker in able}:
        return snapshot.gang
    return frozenset(worker.name for worker in enough(able, snapshot.gang_size or 1))
