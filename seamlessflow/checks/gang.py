"""Check of the gang: as many workers train as `trainer.ranks` says, each with its own rank."""

from collections import defaultdict
from collections.abc import Iterator, Mapping

from infra.faults import Fault
from infra.settings import from_environment
from seamlessflow.config import RunConfig, WorkerSection
from trainer.roles.gang_errors import GangMismatch
from trainer.settings import TrainerSettings

_RANK = "SEAMLESSFLOW_TRAINER__RANK"


def gang_faults(config: RunConfig) -> Iterator[Fault]:
    """Yield what keeps the workers that train from training together."""
    ranks, size = config.trainer.ranks, config.scheduler.gang_size
    trainers = [worker for worker in config.workers if "train" in worker.tags]
    # On a cluster of its own the run may have further workers on other machines.
    elsewhere = config.kafka is not None and len(trainers) < ranks
    if trainers and len(trainers) != ranks and not elsewhere:
        names = [worker.id for worker in trainers]
        yield Fault(("trainer", "ranks"), str(GangMismatch(names, ranks)))
    elif size is not None and size != ranks:
        yield Fault(("scheduler", "gang_size"), f"is {size}, but trainer.ranks is {ranks}")
    of_rank: Mapping[str, list[str]] = defaultdict(list)
    for worker in trainers:
        of_rank[_rank(worker, config)].append(worker.id)
    for rank, names in of_rank.items():
        if len(names) > 1:
            text = f"{', '.join(names)} have the same trainer.rank {rank}: set {_RANK}"
            yield Fault(("workers",), f"{text} in the environment of each")


def _rank(worker: WorkerSection, config: RunConfig) -> str:
    values, _ = from_environment(TrainerSettings, worker.environment)
    own = values.get("trainer")
    return str({"rank": config.trainer.rank, **(own if isinstance(own, dict) else {})}["rank"])
