"""Errors between the trainer and the ranks of its gang."""

from collections.abc import Sequence

from seamlessflow.infra.errors import SeamlessFlowError


class GangBroken(SeamlessFlowError):
    """The loss of a rank: the others and the trainer cannot go on without it; all start again."""

    lasting = False

    def __init__(self, worker: str, reason: str = "") -> None:
        self.worker = worker
        self.reason = reason
        text = f"the training process of worker {worker} was lost; all ranks start again"
        super().__init__(f"{text}: {reason}" if reason else text)


class TrainerGone(SeamlessFlowError):
    """The loss of the trainer: the weights of the ranks belong to no run, so they start again."""

    lasting = False

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"the trainer of this gang was lost: {reason}")


class GangMismatch(SeamlessFlowError):
    """A gang of the scheduler with another number of devices than `trainer.ranks`."""

    lasting = True

    def __init__(self, workers: Sequence[str], devices: int, ranks: int) -> None:
        self.workers = tuple(workers)
        self.devices = devices
        self.ranks = ranks
        super().__init__(
            f"the gang is {', '.join(self.workers)}: {devices} devices, trainer.ranks is {ranks}: "
            "set scheduler.gang_size and trainer.ranks to the number of devices that can train"
        )


class AnotherTrainer(SeamlessFlowError):
    """A second leader on this log; this one may have been suspended and replaced."""

    lasting = True

    def __init__(self, lineage: str, mine: str) -> None:
        self.lineage = lineage
        self.own = mine
        super().__init__(
            f"a step of lineage {lineage} was committed, this process's is {mine}: only one "
            "trainer trains a policy on a topic_prefix"
        )
