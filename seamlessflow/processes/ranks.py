"""Ranks of the workers that train: one for each device, in the order of the workers. Pure."""

from collections.abc import Mapping

from seamlessflow.config import RunConfig
from seamlessflow.each_policy import each_policy
from seamlessflow.infra.settings import from_environment
from seamlessflow.trainer.settings import TrainerSettings
from seamlessflow.worker_section import WorkerSection


def trains(config: RunConfig) -> list[WorkerSection]:
    """Return the workers of this machine that can train."""
    return [worker for worker in config.workers if "train" in worker.tags]


def devices_that_train(config: RunConfig) -> int:
    """Return the number of devices of these workers."""
    return sum(worker.device_count for worker in trains(config))


def gang_size(config: RunConfig) -> int | None:
    """Return the devices of each gang for the scheduler; None where it cannot have one size.

    Those of all ranks, unless it is set: while a worker of a gang is lost, the scheduler would
    form one of the others, in which the trainer does not train.
    """
    sizes = {policy_config.trainer.ranks for policy_config in each_policy(config)}
    several = len(sizes) == 1 and sizes != {1}
    return config.scheduler.gang_size or (sizes.pop() if several else None)


def first_ranks(config: RunConfig) -> Mapping[str, int]:
    """Return the rank of the first device of each worker that can train, by worker.

    They count from `trainer.rank`, which is above 0 on the further machines of a gang; a worker's
    own environment may say otherwise.
    """
    ranks, rank = {}, config.trainer.rank
    for worker in trains(config):
        values, _ = from_environment(TrainerSettings, worker.environment)
        section = values.get("trainer")
        named = str(section.get("rank")) if isinstance(section, dict) else ""
        # Any other text is refused with the settings of that process.
        ranks[worker.id] = int(named) if named.isdecimal() else rank
        rank += worker.device_count
    return ranks
