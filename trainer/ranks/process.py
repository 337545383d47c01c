"""The parts of a training process that its loop and its moves of memory have in common."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from seamlessflow.infra.worker.activity import Activity, ActivityAccount
from seamlessflow.schemas.records import Record
from seamlessflow.trainer.roles.parts import ProcessParts
from seamlessflow.trainer.roles.roles import TrainerRoles

if TYPE_CHECKING:
    from seamlessflow.infra.weights.from_trainer.sending import WeightsService


@dataclass(frozen=True, slots=True, kw_only=True)
class RankProcess(ProcessParts):
    """The process that speaks for all devices of a worker in its role `train`."""

    roles: TrainerRoles
    activity: ActivityAccount
    weights: WeightsService | None
    """Sends published weights to rollout processes; None if they take them elsewhere."""

    def fold(self, record: Record) -> None:
        """Fold a record that control or fleet had."""
        self.roles.apply(record)
        self.gang.apply(record)

    def enter(self, state: str, activity: Activity) -> None:
        """Set what heartbeats and activity records report from now on."""
        self.status.state = state
        self.activity.enter(activity, self.now_ms())

    def note_computing(self, computes: bool) -> None:
        """Note that in a step the first rank computes from now on, or waits for others."""
        self.activity.enter("training" if computes else "waiting", self.now_ms())
