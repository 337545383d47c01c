"""Check of the gang: as many devices train as `trainer.ranks` says, each with a rank of its own."""

from collections import defaultdict
from collections.abc import Iterator, Mapping

from seamlessflow.config import RunConfig
from seamlessflow.infra.faults import Fault
from seamlessflow.processes.ranks import devices_that_train, first_ranks, trains
from seamlessflow.trainer.roles.gang import GangMismatch

_RANK = "SEAMLESSFLOW_TRAINER__RANK"
_SEVERAL_SIZES = ("adaptive", "bidirectional")
"""Strategies whose gangs have from `scheduler.gang_size` (none: one worker) to all devices."""


def gang_faults(config: RunConfig) -> Iterator[Fault]:
    """Yield what keeps the workers that train from training together."""
    ranks, size = config.trainer.ranks, config.scheduler.gang_size
    devices = devices_that_train(config)
    # With a Kafka of its own the run may have further workers on other machines, each with a file
    # of its own; a file that names several nodes has all of them.
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
    """Yield what is wrong with a strategy that forms gangs of several sizes."""
    policy, ranks = config.scheduler.policy, config.trainer.ranks
    least = min((worker.device_count for worker in trains(config)), default=ranks)
    if policy in _SEVERAL_SIZES and least < ranks:
        sizes = f"forms gangs of {least} to {ranks} devices, and a run trains on {ranks} alone"
        remedy = (
            f"set scheduler.gang_size to {ranks}, or compare strategies with seamlessflow simulate"
        )
        yield Fault(("scheduler", "policy"), f"{policy} {sizes} (trainer.ranks): {remedy}")
