"""Ranks of the workers that train: one for each device, in worker order. Pure.

`gang_faults` refuses workers whose ranks make no gang. As many devices train as `trainer.ranks`
says, each with its own rank.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping

from seamlessflow.config import RunConfig, WorkerSection
from seamlessflow.each_policy import each_policy
from seamlessflow.infra.faults import Fault
from seamlessflow.infra.settings import from_environment
from seamlessflow.trainer.roles.gang import GangMismatch
from seamlessflow.trainer.settings import TrainerSettings

_RANK = "SEAMLESSFLOW_TRAINER__RANK"
_SEVERAL_SIZES = ("adaptive", "bidirectional")
"""Strategies with gangs from `scheduler.gang_size` (none: one worker) up to all devices."""


def trains(config: RunConfig) -> list[WorkerSection]:
    """Return the workers on this machine that can train."""
    return [worker for worker in config.workers if "train" in worker.tags]


def devices_that_train(config: RunConfig) -> int:
    """Return how many devices these workers have."""
    return sum(worker.device_count for worker in trains(config))


def gang_size(config: RunConfig) -> int | None:
    """Return each gang's device count for the scheduler; None if gangs cannot have one size.

    The size is the rank count, unless it is set. Without a size, the scheduler would form a gang
    from the others while one worker is lost. The trainer does not train in such a gang.
    """
    sizes = {policy_config.trainer.ranks for policy_config in each_policy(config)}
    several = len(sizes) == 1 and sizes != {1}
    return config.scheduler.gang_size or (sizes.pop() if several else None)


def first_ranks(config: RunConfig) -> Mapping[str, int]:
    """Return by worker its first device's rank, for each worker that can train.

    Ranks count from `trainer.rank`, which is above 0 on a gang's further machines. A worker's own
    environment may set another rank.
    """
    ranks = {}
    rank = config.trainer.rank
    for worker in trains(config):
        values, _ = from_environment(TrainerSettings, worker.environment)
        section = values.get("trainer")
        named = str(section.get("rank")) if isinstance(section, dict) else ""
        # Any other text is refused with the settings of that process.
        ranks[worker.id] = int(named) if named.isdecimal() else rank
        rank += worker.device_count
    return ranks


def gang_faults(config: RunConfig) -> Iterator[Fault]:
    """Yield what keeps the workers that train from training together."""
    ranks = config.trainer.ranks
    size = config.scheduler.gang_size
    devices = devices_that_train(config)
    # With its own Kafka, the run may have workers on other machines, each with its own file. A file
    # that names several nodes has all workers.
    elsewhere = config.kafka is not None and devices < ranks and len(config.nodes) < 2
    if devices and devices != ranks and not elsewhere:
        names = [worker.id for worker in trains(config)]
        if config.trainer.backend == "torch":
            text = f"torch trains on one device, and {', '.join(names)} have {devices}: set fsdp2"
            yield Fault(("trainer", "backend"), f"{text}, and trainer.ranks {devices}")
        else:
            yield Fault(("trainer", "ranks"), str(GangMismatch(names, devices, ranks)))
    elif size is not None and size != ranks:
        yield Fault(("scheduler", "gang_size"), f"is {size}, but trainer.ranks is {ranks}")
    elif size is None:
        yield from _size_faults(config)
    of_rank: Mapping[int, list[str]] = defaultdict(list)
    counts = {worker.id: worker.device_count for worker in trains(config)}
    for name, first in first_ranks(config).items():
        for rank in range(first, first + counts[name]):
            of_rank[rank].append(name)
    for rank, names in of_rank.items():
        if len(names) > 1:
            text = f"{', '.join(names)} have the same trainer.rank {rank}: set {_RANK}"
            yield Fault(("workers",), f"{text} in the environment of each")


def _size_faults(config: RunConfig) -> Iterator[Fault]:
    """Yield a fault if the strategy forms gangs with several sizes."""
    policy = config.scheduler.policy
    ranks = config.trainer.ranks
    least = min((worker.device_count for worker in trains(config)), default=ranks)
    if policy in _SEVERAL_SIZES and least < ranks:
        sizes = f"forms gangs of {least} to {ranks} devices, and a run trains on {ranks} alone"
        remedy = (
            f"set scheduler.gang_size to {ranks}, or compare strategies with seamlessflow simulate"
        )
        yield Fault(("scheduler", "policy"), f"{policy} {sizes} (trainer.ranks): {remedy}")
