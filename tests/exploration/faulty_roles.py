"""Faults planted in the code that is explored: each does one thing wrong that must be noticed."""

from seamlessflow.producers.rollout.roles.roles import RolloutRoles
from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Record
from tests.exploration.rank_roles import RankRoles


class WaitsForNoTrainer(RolloutRoles):
    """A rollout process that takes the device while the training process has it."""

    def _note_trainer(self, at_ms: int, holds: bool) -> None:
        pass


class WaitsForTheDead(RolloutRoles):
    """A rollout process that believes only the training process that it has given up its role."""

    def _lose(self, record: r.WorkerLost) -> None:
        if record.process == "rollout":
            super()._lose(record)

    def _apply_process(self, record: Record) -> None:
        if not (isinstance(record, r.WorkerHeartbeat) and record.process == "train"):
            super()._apply_process(record)


class ObeysTheDeposed(RankRoles):
    """A training process that obeys a scheduler behind the claim of the next one."""

    def is_newer(self, record: r.RoleAssigned) -> bool:
        return (record.epoch, record.assignment) > self.obeyed
