"""Batches of recorded steps, formed from trajectories by the trainer's own dataloader. Without I/O.

The dataloader repeats recorded steps as it does after a crash. A step's weights decide nothing
here. So a run's batches can be formed before any of its steps is executed.
"""

from collections.abc import Iterator, Mapping
from copy import deepcopy

from seamlessflow.infra.kafka.client import Received
from seamlessflow.recorded.retrain.recorded_run import RecordedRun, RecordedStep, RunNotRepeatable
from seamlessflow.schemas.records import Trajectory
from seamlessflow.schemas.tokens import shown_step
from seamlessflow.trainer.data.batch import Batch, SkippedStep
from seamlessflow.trainer.data.rules import BatchLimits
from seamlessflow.trainer.mixing.mixed_steps import Mixing
from seamlessflow.trainer.recovery.resume import Origin, Resume
from seamlessflow.trainer.settings import TrainerSettings
from seamlessflow.trainer.steps.dataloader import Dataloader
from seamlessflow.trainer.steps.inputs import batch_rules, step_updates


class RecordedBatches:
    """Batches for a run's steps, one after the other, each by its lineage's settings."""

    def __init__(
        self,
        settings: Mapping[str, TrainerSettings],
        run: RecordedRun,
        mixing: Mixing | None = None,
    ) -> None:
        """Prepare; `settings`: by lineage. `mixing`: has the pools of stored sessions."""
        self._of_lineage = settings
        first = settings[run.steps[0].lineage]
        again = {step.step: step.commit for step in run.steps}
        fixed = {
            name: sessions
            for commit in again.values()
            if commit is not None
            for name, sessions in commit.new_groups().items()
        }
        resume = Resume(Origin(), "replay", 0, again, frozenset(), fixed)
        limits = BatchLimits(first.run.groups_per_step, first.run.lag, 0, first.window)
        # Its own, since a skipped step changes it: a run is formed several times.
        self._control_state = deepcopy(run.control_state)
        rules = batch_rules(first)
        policy = first.run.policy
        self._loader = Dataloader(
            resume,
            self._control_state,
            policy,
            rules,
            limits,
            0,
            mixing=mixing or Mixing(),
            policies=first.run.policies,
        )
        self._wanted = run.sessions()
        """Sessions that are not read yet, with the lineage that trained each."""

    def next(self, recorded: RecordedStep, received: Iterator[Received]) -> Batch | None:
        """Return the next step's batch, or None if the step was skipped.

        `received` is read until the batch is complete. Raises `RunNotRepeatable` for a missing
        session.
        """
        while True:
            self._loader.rules = batch_rules(self._of_lineage[recorded.lineage])
            batch, _ = self._loader.next_batch(recorded.step, 0)
            if isinstance(batch, SkippedStep):
                # As the lineage counted it: the step's record may stand in another lineage, behind
                # other weights.
                self._control_state.steps_of[recorded.trains] = recorded.step + 1
                return None
            if batch is not None:
                self._loader.consumed(batch)
                return batch
            item = next(received, None)
            if item is None:
                raise RunNotRepeatable(self._missing(recorded))
            record = item.record
            if isinstance(record, Trajectory) and record.session_id in self._wanted:
                # By its own lineage, usually a later one, which names the rewards for its return.
                lineage = self._wanted.pop(record.session_id)
                self._loader.rules = batch_rules(self._of_lineage[lineage])
                self._loader.add(record, item.partition, item.offset, 0)

    def _missing(self, recorded: RecordedStep) -> str:
        number = shown_step(recorded.step)
        groups = recorded.commit.groups if recorded.commit else {}
        lost = [name for name in groups if name not in self._loader.ready_groups]
        gone = sorted(name for group in groups.values() for name in group if name in self._wanted)
        if not gone:
            return f"groups of step {number} have no valid session: {', '.join(lost[:3])}"
        shown = ", ".join(gone[:3])
        return f"{len(gone)} sessions of step {number} are not on the topic: {shown}"


def micro_batches(
    settings: Mapping[str, TrainerSettings],
    run: RecordedRun,
    received: Iterator[Received],
    number: int,
    mixing: Mixing,
) -> int:
    """Return the micro-batch count in a step's first update, 0 if it was skipped; execute nothing.

    `received`: all records on `trajectories`. `mixing`: its pools. Raises `RunNotRepeatable`.
    """
    batches = RecordedBatches(settings, run, mixing)
    for earlier in run.steps[:number]:
        batches.next(earlier, received)
    recorded = run.steps[number]
    batch = batches.next(recorded, received)
    if batch is None:
        return 0
    first, *_ = step_updates(settings[recorded.lineage], batch, recorded.trains, 0, ())
    return len(first.input.micro_batches)
