"""Steps in a one-process loop: sessions become a batch, and a batch becomes an update.

Dataloader, estimators, losses and back end are the trainer's; there is no Kafka.
"""

from collections.abc import Sequence

from seamlessflow.schemas.records import Trajectory
from seamlessflow.trainer.backends.torch_backend import TorchBackend
from seamlessflow.trainer.data.batch import Batch
from seamlessflow.trainer.data.rules import BatchLimits
from seamlessflow.trainer.mixing.mixed_steps import Mixing
from seamlessflow.trainer.recovery.control_state import ControlState
from seamlessflow.trainer.recovery.resume import Origin, resume_from
from seamlessflow.trainer.settings import TrainerSettings
from seamlessflow.trainer.steps.annotation import annotated
from seamlessflow.trainer.steps.dataloader import Dataloader
from seamlessflow.trainer.steps.inputs import Update, batch_rules, of_step, step_updates


class Steps:
    """One policy's steps. A version is the number of its steps."""

    def __init__(
        self, settings: TrainerSettings, backend: TorchBackend, mixing: Mixing | None = None
    ) -> None:
        """Begin before the first step. `mixing`: stored sessions for them."""
        self._settings = settings
        self._backend = backend
        policy = settings.run.policy
        groups = settings.run.groups_per_step
        self._state = ControlState(policy)
        limits = BatchLimits(groups, settings.run.lag, refill=0, window=groups)
        resume = resume_from(self._state, Origin(), "loop")
        self._loader = Dataloader(
            resume,
            self._state,
            policy,
            batch_rules(settings),
            limits,
            0,
            mixing=mixing or Mixing(),
        )
        self._offset = 0
        self.step = 0

    def batch(self, trajectories: Sequence[Trajectory]) -> Batch:
        """Return the batch that the dataloader makes from a step's sessions."""
        for trajectory in trajectories:
            self._loader.add(trajectory, 0, self._offset, now_ms=0)
            self._offset += 1
        batch, _ = self._loader.next_batch(self.step, now_ms=0)
        assert isinstance(batch, Batch), f"no batch at step {self.step}: {batch}"
        return batch

    def updates(self, batch: Batch) -> list[Update]:
        """Return the updates that train a batch under the present weights."""
        ready = annotated(self._settings.trainer, batch, self._backend)
        return step_updates(self._settings, ready, self.step, self.step, ())

    def train(self, batch: Batch, updates: Sequence[Update]) -> dict[str, float]:
        """Make a batch's updates, and return the step's metrics."""
        metrics = of_step([self._backend.train(update.input) for update in updates])
        self.pass_over(batch)
        return metrics

    def pass_over(self, batch: Batch) -> None:
        """Begin the next step, whether the batch was trained or not."""
        self._loader.consumed(batch)
        self.step += 1
        self._state.steps_of[self.step] = self.step
