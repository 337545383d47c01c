"""Execution of recorded steps again, from trajectories to tensors, without the rest of the system.

The batches are formed by the trainer's own dataloader, which repeats recorded steps as it does
after a crash; nothing is written to `control`.
"""

import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from infra.kafka.client import Received
from infra.weights.tensors import tensor_hashes, tensors_hash
from schemas.records import Trajectory
from trainer.backends.backend import Backend
from trainer.data.advantages import ESTIMATORS
from trainer.data.batch import Batch, BatchRules
from trainer.recovery.resume import Origin, Resume
from trainer.replay.recorded_run import RecordedRun, RecordedStep, RunNotRepeatable
from trainer.settings import TrainerSettings
from trainer.steps.dataloader import BatchLimits, Dataloader, SkippedStep
from trainer.steps.inputs import step_input

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RepeatedStep:
    """A step that was executed again, beside its record."""

    recorded: RecordedStep
    tensors_hash: str
    metrics: Mapping[str, float] = field(default_factory=dict)

    @property
    def equal(self) -> bool:
        """True if the tensors are the recorded ones, or the step was skipped."""
        return self.recorded.commit is None or self.tensors_hash == self.recorded.tensors_hash


class Reexecution:
    """The steps of a run, executed on a back end that holds the initial weights."""

    def __init__(self, settings: TrainerSettings, run: RecordedRun, backend: Backend) -> None:
        self._settings, self._run, self._backend = settings, run, backend
        again = {one.step: one.commit for one in run.steps}
        fixed = {
            name: of
            for commit in again.values()
            if commit is not None
            for name, of in commit.groups.items()
        }
        resume = Resume(Origin(), "replay", 0, again, frozenset(), fixed)
        filters = {str(name): action for name, action in settings.trainer.filters.items()}
        rules = BatchRules(
            ESTIMATORS[settings.trainer.advantage],
            filters,
            settings.trainer.on_stale,
            settings.run.lag,
        )
        limits = BatchLimits(settings.run.groups_per_step, settings.run.lag, 0, settings.window)
        policy = settings.run.policy
        self._loader = Dataloader(resume, run.control_state, policy, rules, limits, 0)
        self._wanted = set(run.sessions())
        self._trained = 0

    def first_weights(self) -> str:
        """Return the hash of the weights in memory."""
        return self._hash(tensors_hash)

    def run(self, received: Iterator[Received], until: int | None = None) -> Iterator[RepeatedStep]:
        """Yield the steps before `until` (by default all), one after the other.

        `received`: all records of `trajectories`. Raises `RunNotRepeatable` for a session that is
        not among them, and the errors of the back end.
        """
        self._backend.load(None, self._run.steps[0].trains)
        self._backend.acquire()
        for recorded in self._run.steps[:until]:
            batch = self._batch(recorded, received)
            yield RepeatedStep(recorded, "") if batch is None else self._repeated(recorded, batch)

    def tensors(self) -> Mapping[str, str]:
        """Return the hash of each tensor of the weights in memory, by name."""
        return self._hash(tensor_hashes)

    def _batch(self, recorded: RecordedStep, received: Iterator[Received]) -> Batch | None:
        """Return the batch of a step, or None if it was skipped; read until it is complete."""
        while True:
            found, _ = self._loader.next_batch(recorded.step, 0)
            if found is not None:
                return None if isinstance(found, SkippedStep) else found
            item = next(received, None)
            if item is None:
                raise RunNotRepeatable(self._missing(recorded))
            record = item.record
            if isinstance(record, Trajectory) and record.session_id in self._wanted:
                self._wanted.discard(record.session_id)
                self._loader.add(record, item.partition, item.offset, 0)

    def _missing(self, recorded: RecordedStep) -> str:
        groups = recorded.commit.groups if recorded.commit else {}
        lost = [name for name in groups if name not in self._loader.ready_groups]
        gone = sorted(one for of in groups.values() for one in of if one in self._wanted)
        if not gone:
            return f"groups of step {recorded.step} have no valid session: {', '.join(lost[:3])}"
        shown = ", ".join(gone[:3])
        return f"{len(gone)} sessions of step {recorded.step} are not on the topic: {shown}"

    def _repeated(self, recorded: RecordedStep, batch: Batch) -> RepeatedStep:
        remembered = self._backend.remembered()
        step = step_input(self._settings, batch, recorded.trains, self._trained, remembered)
        metrics = dict(self._backend.train(step))
        self._loader.consumed(batch)
        self._trained += 1
        if recorded.commit is not None:
            self._backend.remember(recorded.commit.version)
        return RepeatedStep(recorded, self._hash(tensors_hash), metrics)

    def _hash(self, hashed: Callable[[Path], T]) -> T:
        with tempfile.TemporaryDirectory() as directory:
            self._backend.write_weights(Path(directory))
            return hashed(Path(directory))
