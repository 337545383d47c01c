"""Training of a recorded run again, from the steps on `control` and the recorded trajectories."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from infra.errors import SettingsRejected
from infra.kafka.outage import Stopping
from infra.kafka.unreadable import Skipped
from infra.kafka.whole_topic import read_topic
from infra.settings import KafkaSettings
from schemas.records import LineageStarted, Record
from schemas.topics import CONTROL, TRAJECTORIES
from trainer.backends.backend import Machine
from trainer.backends.torch_backend import TorchBackend
from trainer.replay.recorded_run import RecordedRun, RunNotRepeatable, recorded_run
from trainer.replay.reexecution import Reexecution, RepeatedStep
from trainer.replay.settings import recorded_settings


@dataclass(frozen=True, slots=True)
class TrainingAgain:
    """A recorded run, ready to be executed again."""

    kafka: KafkaSettings
    run: RecordedRun
    steps: Reexecution
    backend: TorchBackend
    ablation: bool
    """True if settings are replaced, so that equal tensors are not to be expected."""
    first_hash: str
    """Hash of the weights that it begins with."""

    @property
    def machine_differs(self) -> str:
        """Sentence about what computes otherwise than recorded; empty if nothing does."""
        now = self.backend.machine
        changes = {
            f"{name} {getattr(now, name)}, recorded {getattr(then, name)}": None
            for then in map(recorded_machine, self.run.lineages)
            for name in ("device", "threads", "torch")
            if getattr(now, name) != getattr(then, name)
        }
        if (ranks := self.run.lineages[0].ranks) > 1:
            changes[f"1 rank, recorded {ranks}"] = None
        return "; ".join(changes)

    def repeated(
        self, skipped: Skipped, until: int | None, stopping: Stopping
    ) -> Iterator[RepeatedStep]:
        """Yield the steps, executed one after the other; see `Reexecution.run`."""
        received = read_topic(self.kafka, TRAJECTORIES, skipped, stopping=stopping)
        return self.steps.run(received, until)


def training_again(
    kafka: KafkaSettings,
    policy: str | None,
    replaced: Sequence[str],
    skipped: Skipped,
    stopping: Stopping,
) -> TrainingAgain:
    """Return the run of `policy` with its initial weights in memory.

    Raises `RunNotRepeatable` with what is missing, `SettingsRejected`, and `ModelUnusable`.
    """
    log = [
        (item.offset, item.record)
        for item in read_topic(kafka, CONTROL, skipped, stopping=stopping)
    ]
    run = recorded_run(_policy(policy, [record for _, record in log]), log)
    settings = recorded_settings(run.lineages[0], kafka, replaced)
    model = settings.policy.model
    if not model.is_dir():
        raise RunNotRepeatable(f"the initial model {model} is not there")
    backend = TorchBackend(model, settings.trainer)
    steps = Reexecution(settings, run, backend)
    found = steps.first_weights()
    if run.first_hash and found != run.first_hash and not replaced:
        raise RunNotRepeatable(
            f"{model} has other tensors ({found}) than the run ({run.first_hash})"
        )
    return TrainingAgain(kafka, run, steps, backend, bool(replaced), found)


def recorded_machine(lineage: LineageStarted) -> Machine:
    """Return what computed a lineage."""
    return Machine(lineage.device, lineage.threads, lineage.torch)


def known_tensors(path: Path) -> Mapping[str, str] | None:
    """Return the hashes of tensors in a file, or None if it is new.

    Raises `SettingsRejected` for another kind of file.
    """
    if not path.exists():
        return None
    try:
        return dict(json.loads(path.read_bytes()))
    except (OSError, ValueError, TypeError) as error:
        raise SettingsRejected("--tensors", f"{path}: {error}") from error


def first_difference(known: Mapping[str, str], tensors: Mapping[str, str]) -> str | None:
    """Return the first tensor, in the order of names, that differs; None if all are equal."""
    names = sorted(known.keys() | tensors.keys())
    return next((name for name in names if known.get(name) != tensors.get(name)), None)


def _policy(asked: str | None, log: Sequence[Record]) -> str:
    names = {record.policy for record in log if isinstance(record, LineageStarted)}
    if asked is None and len(names) == 1:
        return names.pop()
    if asked in names:
        return str(asked)
    if not names:
        raise RunNotRepeatable("control has no LineageStarted; releases since 0.1.0 write it")
    raise SettingsRejected("--policy", f"must be one of {', '.join(sorted(names))}")
