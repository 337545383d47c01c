"""Recorded steps executed again, from trajectories to tensors, without the rest of the system.

Nothing is written to `control`.
"""

import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, TypeVar

from seamlessflow.infra.kafka.client import Received
from seamlessflow.infra.weights.tensors import tensor_hashes, tensors_hash
from seamlessflow.recorded.retrain.recorded_batches import RecordedBatches
from seamlessflow.recorded.retrain.recorded_run import RecordedRun, RecordedStep
from seamlessflow.trainer.backends.backend import LocalBackend, StepInput
from seamlessflow.trainer.data.batch import Batch
from seamlessflow.trainer.mixing.mixed_steps import Mixing
from seamlessflow.trainer.settings import TrainerSettings
from seamlessflow.trainer.steps.annotation import annotated
from seamlessflow.trainer.steps.inputs import Update, of_step, step_updates

T = TypeVar("T")
B = TypeVar("B", bound=LocalBackend)


@dataclass(frozen=True, slots=True)
class RepeatedStep:
    """A step that was executed again, beside its record."""

    recorded: RecordedStep
    tensors_hash: str
    metrics: Mapping[str, float] = field(default_factory=dict)

    @property
    def equal(self) -> bool:
        """True if the tensors equal the recorded ones, or the step was skipped."""
        return self.recorded.commit is None or self.tensors_hash == self.recorded.tensors_hash


class Reexecution(Generic[B]):
    """A run's steps, executed on a back end that holds the initial weights.

    If a lineage has other settings, it goes on with them, as the resumed trainer did.
    """

    def __init__(
        self,
        settings: Mapping[str, TrainerSettings],
        run: RecordedRun,
        open_backend: Callable[[TrainerSettings], B],
        mixing: Mixing | None = None,
    ) -> None:
        """Prepare; `settings`: by lineage. `open_backend` returns one with the initial model.

        `mixing` has the pools of stored sessions.
        """
        self._of_lineage = settings
        self._run = run
        self._open = open_backend
        self._lineage = run.steps[0].lineage
        self._settings = settings[self._lineage]
        self.backend = open_backend(self._settings)
        """Holder for the weights; a new one after each change to the trainer's settings."""
        self._batches = RecordedBatches(settings, run, mixing)
        self._trained = 0

    def first_weights(self) -> str:
        """Return a hash over the weights in memory."""
        return self._hash(tensors_hash)

    def run(self, received: Iterator[Received], until: int | None = None) -> Iterator[RepeatedStep]:
        """Yield the steps before `until` (by default all), one after the other.

        `received`: all records on `trajectories`. Raises `RunNotRepeatable` for a session that is
        not among them, and the back end's errors.
        """
        self.backend.load(None, self._run.steps[0].trains)
        self.backend.acquire()
        for recorded in self._run.steps[:until]:
            self._go_on(recorded)
            batch = self._batches.next(recorded, received)
            if batch is None:
                yield RepeatedStep(recorded, "")
            else:
                yield self._repeated(recorded, batch)

    def begin(self, received: Iterator[Received], number: int) -> StepInput | None:
        """Return the input of the first update in step `number`, or None if it was skipped.

        It is the step behind those that `run` executed. Raises what `run` raises.
        """
        recorded = self._run.steps[number]
        self._go_on(recorded)
        batch = self._batches.next(recorded, received)
        return None if batch is None else self._updates(recorded, batch)[0].input

    def tensors(self) -> Mapping[str, str]:
        """Return each weight tensor's hash, from memory, by name."""
        return self._hash(tensor_hashes)

    def _repeated(self, recorded: RecordedStep, batch: Batch) -> RepeatedStep:
        updates = self._updates(recorded, batch)
        metrics = of_step([self.backend.train(update.input) for update in updates])
        self._trained += 1
        if recorded.commit is not None:
            self.backend.remember(recorded.commit.version)
        return RepeatedStep(recorded, self._hash(tensors_hash), metrics)

    def _updates(self, recorded: RecordedStep, batch: Batch) -> list[Update]:
        remembered = self.backend.remembered()
        batch = annotated(self._settings.trainer, batch, self.backend)
        return step_updates(self._settings, batch, recorded.trains, self._trained, remembered)

    def _go_on(self, recorded: RecordedStep) -> None:
        """Take over the settings of a step's lineage."""
        if recorded.lineage == self._lineage:
            return
        before = self._settings
        self._lineage = recorded.lineage
        self._settings = self._of_lineage[recorded.lineage]
        if self._settings.trainer == before.trainer:
            return
        with tempfile.TemporaryDirectory() as directory:
            self.backend.snapshot()
            self.backend.save(Path(directory))
            self.backend.release()
            self.backend = self._open(self._settings)
            self.backend.load(Path(directory), recorded.trains)
        self.backend.acquire()

    def _hash(self, hashed: Callable[[Path], T]) -> T:
        with tempfile.TemporaryDirectory() as directory:
            self.backend.write_weights(Path(directory))
            return hashed(Path(directory))
