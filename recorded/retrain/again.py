"""Training a recorded run again, from the steps on `control` and the recorded trajectories."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from seamlessflow.infra.clock import Stopping
from seamlessflow.infra.errors import SettingsRejected
from seamlessflow.infra.kafka.client import Received
from seamlessflow.infra.kafka.unreadable import Skipped
from seamlessflow.infra.kafka.whole_topic import read_topic
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.infra.weights.model_hub import HubModel, cached, look_up
from seamlessflow.recorded.retrain.recorded_batches import micro_batches
from seamlessflow.recorded.retrain.recorded_run import (
    RecordedRun,
    RunNotRepeatable,
    changed_settings,
    check_methods,
    recorded_run,
    recorded_settings,
)
from seamlessflow.recorded.retrain.reexecution import Reexecution
from seamlessflow.schemas.records import LineageStarted, Record, StepCommitted
from seamlessflow.schemas.tokens import step_name
from seamlessflow.schemas.topics import CONTROL, TRAJECTORIES
from seamlessflow.trainer.backends.backend import Machine
from seamlessflow.trainer.backends.torch_backend import TorchBackend
from seamlessflow.trainer.mixing.mixed_steps import Mixing
from seamlessflow.trainer.mixing.topics import pools_of
from seamlessflow.trainer.recording import source_kafka
from seamlessflow.trainer.settings import TrainerSettings
from seamlessflow.trainer.step_methods import CHOOSING, step_methods


@dataclass(frozen=True, slots=True)
class RecordedTraining:
    """A recorded run, and the settings under which each of its lineages is executed."""

    run: RecordedRun
    settings: Mapping[str, TrainerSettings]
    ablation: bool
    model: Path
    """The initial model's directory."""

    def trajectories(self, skipped: Skipped, stopping: Stopping) -> Iterator[Received]:
        """Return the records on `trajectories` that it trained."""
        source = source_kafka(self.settings[self.run.lineages[0].lineage])
        return read_topic(source, TRAJECTORIES, skipped, stopping=stopping)

    @contextmanager
    def pools(self, stopping: Stopping) -> Iterator[Mixing]:
        """Yield the pools with stored sessions with which its steps were trained.

        Raises the errors of `PoolTopics.open`.
        """
        last = self.settings[self.run.lineages[-1].lineage]
        mixing, topics = pools_of(last, None, stopping)
        with closing(topics):
            topics.open()
            yield mixing

    def check_place(self, step: int, micro_batch: int | None, stopping: Stopping) -> None:
        """Raise `SettingsRejected` unless it trained the step, and the micro-batch if one is given.

        It executes nothing. Raises `RunNotRepeatable`.
        """
        count = len(self.run.steps)
        if step >= count:
            raise SettingsRejected("--step", f"the run has {count}")
        if self.run.steps[step].commit is None:
            raise SettingsRejected("--step", f"{step_name(step)} trained nothing")
        if micro_batch is None:
            return
        received = self.trajectories(Skipped(), stopping)
        with self.pools(stopping) as mixing:
            count = micro_batches(self.settings, self.run, received, step, mixing)
        if micro_batch >= count:
            raise SettingsRejected(
                "--micro-batch", f"{step_name(step)} has {count}, counted from 0"
            )


@dataclass(frozen=True, slots=True)
class TrainingAgain:
    """A recorded run, ready to be executed again."""

    run: RecordedRun
    steps: Reexecution[TorchBackend]
    received: Iterator[Received]
    """Records on `trajectories`, read as far as the steps need them."""
    ablation: bool
    """True if settings are replaced, so that tensors are not expected to be equal."""

    @property
    def machine_differs(self) -> str:
        """A sentence about differences to the recorded machine; empty if there are none."""
        now = self.steps.backend.machine
        changes: dict[str, None] = {}
        for lineage in self.run.lineages:
            then = recorded_machine(lineage)
            changes |= {
                f"{name} {getattr(now, name)}, recorded {getattr(then, name)}": None
                for name in ("device", "torch")
                if getattr(now, name) != getattr(then, name)
            }
            if lineage.ranks > 1:
                changes[f"1 rank, recorded {lineage.ranks}"] = None
        return "; ".join(changes)

    @property
    def resumptions(self) -> Sequence[str]:
        """Sentences about the lineages that went on with other settings than their predecessor."""
        return [
            f"resumed behind step {after.step} with {len(changes)} other settings: "
            f"{_listed(changes)}"
            for before, after in pairwise(self.run.lineages)
            if (changes := changed_settings(before, after))
        ]


def recorded_training(
    kafka: KafkaSettings,
    policy: str | None,
    replaced: Sequence[str],
    skipped: Skipped,
    stopping: Stopping,
    out: Path | None = None,
) -> RecordedTraining:
    """Return a policy's recorded run, with the settings in `replaced` replaced.

    `out`: the run's directory. Only reads `control`. Raises `RunNotRepeatable` with what is
    missing, and `SettingsRejected`.
    """
    log = [
        (item.offset, item.record)
        for item in read_topic(kafka, CONTROL, skipped, stopping=stopping)
    ]
    run = recorded_run(trained_policy(policy, [record for _, record in log]), log)
    settings = {
        lineage.lineage: recorded_settings(lineage, kafka, replaced) for lineage in run.lineages
    }
    if not replaced:
        present = {name: step_methods(chosen, CHOOSING) for name, chosen in settings.items()}
        check_methods(run, present)
    if any(chosen.trainer.backend == "clock" for chosen in settings.values()):
        raise RunNotRepeatable("it was a rehearsal (trainer.backend clock), which trained nothing")
    model = initial_model(settings[run.lineages[0].lineage].policy.model, out)
    return RecordedTraining(run, settings, bool(replaced), model)


def initial_model(named: Path, out: Path | None) -> Path:
    """Return the directory with the initial model that a run named.

    The run may have been started in another working directory than this command. So a relative name
    is also looked for beside the run's directory, and in it. A hub's model is fetched again, by its
    commit. Raises `RunNotRepeatable` and `ModelNotFetched`.
    """
    places = [named] if out is None else [named, out.parent / named, out / named]
    for place in dict.fromkeys(place.absolute() for place in places):
        if place.is_dir():
            return place
    if (model := HubModel.of_snapshot(named)) is not None:
        return cached(model) or look_up(model).fetch()
    looked = ", ".join(str(place) for place in dict.fromkeys(path.absolute() for path in places))
    raise RunNotRepeatable(
        f"the initial model {named} is not there (looked for {looked}): give the command the "
        "working directory of the run"
    )


@contextmanager
def training_again(
    recorded: RecordedTraining, skipped: Skipped, stopping: Stopping
) -> Iterator[TrainingAgain]:
    """Yield the run with its initial weights in memory, and its pools open.

    Raises `RunNotRepeatable` with what is missing, `ModelUnusable`, and what
    `RecordedTraining.pools` raises.
    """
    run = recorded.run
    settings = recorded.settings
    model = recorded.model
    with recorded.pools(stopping) as mixing:
        # Later lineages went on from a checkpoint, whatever initial model they named.
        steps = Reexecution(
            settings, run, lambda chosen: TorchBackend(model, chosen.trainer), mixing
        )
        weights_hash = steps.first_weights()
        if run.first_hash and weights_hash != run.first_hash and not recorded.ablation:
            raise RunNotRepeatable(
                f"{model} has other tensors ({weights_hash}) than the run ({run.first_hash})"
            )
        received = recorded.trajectories(skipped, stopping)
        yield TrainingAgain(run, steps, received, recorded.ablation)


def recorded_machine(lineage: LineageStarted) -> Machine:
    """Return the machine that computed a lineage."""
    return Machine(lineage.device, lineage.threads, lineage.torch)


def _listed(changes: Mapping[str, str], most: int = 5) -> str:
    shown = [f"{name} {change}" for name, change in list(changes.items())[:most]]
    return ", ".join([*shown, *(["..."] if len(changes) > most else [])])


def trained_policy(asked: str | None, log: Sequence[Record]) -> str:
    """Return the policy to train again, one that was trained according to `control`.

    Raises `RunNotRepeatable` if there is none, and `SettingsRejected`.
    """
    names = {record.policy for record in log if isinstance(record, LineageStarted)}
    if asked is None and len(names) == 1:
        return names.pop()
    if asked in names:
        return str(asked)
    if names:
        raise SettingsRejected("--policy", f"must be one of {', '.join(sorted(names))}")
    if any(isinstance(record, StepCommitted) for record in log):
        raise RunNotRepeatable("control has no LineageStarted; releases since 0.1.0 write it")
    raise RunNotRepeatable("no training has begun: control has no step")
