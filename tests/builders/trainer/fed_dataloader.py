"""A dataloader that tests feed with sessions, group by group."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from seamlessflow.schemas.records import Record
from seamlessflow.trainer.data.batch import Batch, SkippedStep
from seamlessflow.trainer.data.reuse import UsedGroup
from seamlessflow.trainer.data.rules import BatchLimits, BatchRules
from seamlessflow.trainer.mixing.mixed_steps import Mixing
from seamlessflow.trainer.recovery.control_state import ControlState
from seamlessflow.trainer.recovery.resume import Origin, resume_from
from seamlessflow.trainer.steps.dataloader import Dataloader
from tests.builders.records.control import committed
from tests.builders.trainer.groups import RULES
from tests.builders.trainer.trajectories import masked_whole, one_turn

LIMITS = BatchLimits(groups=2, lag=1, refill=1, window=4)


class FedDataloader:
    """A dataloader, its control state, and the records it returned."""

    def __init__(
        self,
        *recorded: Record,
        rules: BatchRules = RULES,
        origin: Origin | None = None,
        policies: tuple[str, ...] = (),
        reusable: Sequence[UsedGroup] = (),
        mixing: Mixing | None = None,
    ) -> None:
        self.control_state = ControlState("tiny")
        for offset, record in enumerate(recorded):
            self.control_state.apply(record, offset)
        todo = resume_from(self.control_state, origin or Origin(), "b", reusable)
        self.loader = Dataloader(
            todo,
            self.control_state,
            "tiny",
            rules,
            LIMITS,
            0,
            mixing=mixing or Mixing(),
            policies=policies,
        )
        self.returned: list[Record] = []
        self.commits: list[Record] = []
        """Of the steps that `train` trained."""
        self.offset = 0

    def apply(self, *records: Record, now_ms: int = 0) -> None:
        for record in records:
            self.control_state.apply(record, self.control_state.offset)
            self.loader.apply(record, now_ms)

    def session(
        self,
        group: str,
        sample: int,
        reward: float,
        version: int = 0,
        masked: str = "",
        **changes: Any,
    ) -> None:
        trajectory = one_turn(
            f"{group}.{sample}.0", reward, version, group=group, sample=sample, group_size=2
        )
        trajectory = masked_whole(trajectory, masked) if masked else trajectory
        trajectory = replace(trajectory, **changes)
        self.returned += self.loader.add(trajectory, 3, self.offset, now_ms=0)
        self.offset += 1

    def group(
        self,
        name: str,
        rewards: tuple[float, float] = (1, 0),
        version: int = 0,
        masked: str = "",
    ) -> None:
        for sample, reward in enumerate(rewards):
            self.session(name, sample, reward, version, masked)

    def train(self, step: int) -> Batch:
        """Return the batch of a step, which is committed and makes version `step` + 1."""
        batch = self.next(step)
        assert isinstance(batch, Batch)
        self.loader.consumed(batch)
        self.commits.append(committed(step, batch.members()))
        self.apply(self.commits[-1])
        return batch

    def next(self, step: int = 0) -> Batch | SkippedStep | None:
        batch, records = self.loader.next_batch(step, now_ms=0)
        self.returned += records
        return batch
