"""Errors between the trainer processes of a gang."""

from collections.abc import Sequence

from infra.errors import SeamlessFlowError


class GangBroken(SeamlessFlowError):
    """The loss of a rank: the others cannot go on without it, so all start again."""

    lasting = False

    def __init__(self, worker: str) -> None:
        self.worker = worker
        super().__init__(f"the trainer process of worker {worker} was lost; all ranks start again")


class GangMismatch(SeamlessFlowError):
    """A gang of the scheduler with another size than the back end's `trainer.ranks`."""

    lasting = True

    def __init__(self, workers: Sequence[str], ranks: int) -> None:
        self.workers = tuple(workers)
        self.ranks = ranks
        super().__init__(
            f"the gang is {', '.join(self.workers)}, trainer.ranks is {ranks}: set "
            "scheduler.gang_size and trainer.ranks to the number of workers that can train"
        )


class AnotherTrainer(SeamlessFlowError):
    """A second leader on this log; this one may have been suspended and replaced."""

    lasting = True

    def __init__(self, lineage: str, own: str) -> None:
        self.lineage = lineage
        self.own = own
        super().__init__(
            f"a step of lineage {lineage} was committed, this process's is {own}: only one trainer "
            "process may lead (trainer.rank 0) on a topic_prefix"
        )
