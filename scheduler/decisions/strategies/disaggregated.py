"""The strategy `disaggregated`: each worker has one role for good. Pure.

With lag 0 rollout and training take turns; with lag 1 rollout is one step ahead.
"""

from seamlessflow.scheduler.decisions.snapshot import Snapshot
from seamlessflow.scheduler.decisions.strategies.gangs import device_sum, enough, form_gang
from seamlessflow.scheduler.decisions.strategies.wanted import BOTH, Wanted, roll_out, train


def disaggregated(snapshot: Snapshot) -> list[Wanted]:
    """Want one role for good; of the workers with both tags, as many train as the gang needs."""
    only_train = [worker for worker in snapshot.workers if worker.tags == {"train"}]
    both = sorted(
        (worker for worker in snapshot.workers if worker.tags >= BOTH),
        # Those that train already come first, so that measured speeds do not move anyone.
        key=lambda worker: (worker.role != "train", -worker.ratio, worker.name),
    )
    size = snapshot.gang_size
    chosen = both if size is None else enough(both, size - device_sum(only_train))
    gang = form_gang(snapshot, [*only_train, *chosen])
    others = [
        worker for worker in snapshot.workers if "rollout" in worker.tags and worker not in chosen
    ]
    return [*train(snapshot, gang, "trains for good"), *roll_out(snapshot, others, gang)]
