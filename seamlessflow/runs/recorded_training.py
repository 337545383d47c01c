"""Training on recorded sessions, with only broker, scheduler and trainers.

The trainers read `trajectories` under the recording's prefix, which `replay merge` or `import`
wrote. They write `control` and `fleet` under this training's prefix. Repeated, the command resumes.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from seamlessflow.config import RunConfig
from seamlessflow.infra.clock import Stopping
from seamlessflow.infra.errors import SettingsRejected
from seamlessflow.infra.kafka.topics.creation import check_prefix, create_topics
from seamlessflow.infra.kafka.topics.existing import partition_counts
from seamlessflow.infra.kafka.unreadable import Skipped
from seamlessflow.infra.kafka.whole_topic import read_topic
from seamlessflow.infra.network.addresses import free_port
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.processes.cluster import KAFKA_DIR, NoRunData, NoRunningRun, kafka_of_running
from seamlessflow.processes.launcher import Launcher
from seamlessflow.processes.locks import only_run
from seamlessflow.processes.specs import SCHEDULER, LaunchContext, ProcessSpecs
from seamlessflow.processes.stopping import Stop
from seamlessflow.processes.supervisor import Supervisor
from seamlessflow.processes.system import embedded_broker
from seamlessflow.reports.outcome import RunOutcome, write_report
from seamlessflow.reports.summary import LauncherFacts
from seamlessflow.runs.training import is_finished
from seamlessflow.schemas.records import Trajectory
from seamlessflow.schemas.topics import CONTROL, FLEET, PROMPTS, SESSIONS, TASKS, TRAJECTORIES
from seamlessflow.watching.display import Display
from seamlessflow.watching.observer import Observer, progress_from_now

_WRITTEN = (CONTROL, FLEET, TASKS, PROMPTS)


@dataclass(frozen=True, slots=True)
class Recording:
    """The sessions to train on, and where the training writes."""

    source: str
    """Prefix of the recorded trajectories."""
    to: str
    """Prefix for the topics that the training writes."""
    follow: bool
    """True to wait for further sessions at their end."""


def configured(config: RunConfig, recording: Recording) -> RunConfig:
    """Return the training's configuration, with its own directory within the run's.

    Raises `SettingsRejected` for an invalid prefix.
    """
    check_prefix("--from", recording.source)
    check_prefix("--to", recording.to)
    places = dict.fromkeys(("weights_dir", "trained_dir", "checkpoints_dir", "metrics_csv"))
    reads = {"source_prefix": recording.source, "follow": recording.follow}
    workers = tuple(
        worker.model_copy(update={"tags": ("train",)})
        for worker in config.workers
        if "train" in worker.tags
    )
    return config.model_copy(
        update={
            "out": config.out / recording.to.strip("."),
            "workers": workers,
            # Other strategies want workers that also roll out, and would never let one train.
            "scheduler": config.scheduler.model_copy(update={"policy": "multiplexed"}),
            "trainer": config.trainer.model_copy(update={**places, **reads}),
            "pacing": config.pacing.model_copy(
                update={"tasks": None, "sources": {}, "forks": None}
            ),
            "evaluation": config.evaluation.model_copy(update={"tasks": None, "sets": {}}),
        }
    )


def train_recorded(
    config: RunConfig, recording: Recording, display: Display, stop: Stop
) -> RunOutcome:
    """Train to the end of the recording or of the run; write the report in its directory.

    `config` is what `configured` returned. Raises what `train` raises.
    """
    supervisor = Supervisor(config.restarts, display.notice)
    with (
        Launcher(config.logs_dir, stop, supervisor) as launcher,
        _kafka(config, launcher, display) as kafka,
    ):
        display.phase("looking at the recording")
        target = kafka.model_copy(update={"topic_prefix": recording.to})
        source = kafka.model_copy(update={"topic_prefix": recording.source})
        _check(kafka, recording)
        _check_policy(source, config.run.policy, launcher.stopping)
        with only_run(config.out):  # what is refused leaves no directory
            create_topics(target, _WRITTEN, stopping=launcher.stopping)
            if not is_finished(config, target, launcher.stopping):
                _run(config, display, launcher, target)
            facts = LauncherFacts(restarts=supervisor.counts, peak_rss_mb=launcher.peaks_mb)
            return write_report(config, target, facts, launcher.stopping, source)


def _run(config: RunConfig, display: Display, launcher: Launcher, kafka: KafkaSettings) -> None:
    """Start scheduler and trainers; stop them once the leader has ended."""
    specs = ProcessSpecs(config, LaunchContext(kafka, free_port(), dict(os.environ)))
    trainers = specs.trainers()
    with Observer(kafka, progress_from_now(config)) as observer:
        try:
            display.phase("training on recorded sessions")
            launcher.start(specs.scheduler())
            for spec in trainers:
                launcher.start(spec)

            def ended() -> bool:
                display.progress(observer.poll())
                leader = launcher.running.get(trainers[0].name)
                return leader is not None and leader.exit_status == 0

            launcher.wait_for("the last recorded session", ended, float("inf"))
        finally:
            launcher.end([SCHEDULER])
            launcher.end([spec.name for spec in trainers])


def _check(kafka: KafkaSettings, recording: Recording) -> None:
    """Raise `SettingsRejected` for a missing prefix, or one that another run writes to."""
    counts = partition_counts(kafka)
    if recording.source + TRAJECTORIES.name not in counts:
        raise SettingsRejected("--from", f"there is no {recording.source}{TRAJECTORIES.name}")
    for option, prefix in (("--from", recording.source), ("--to", recording.to)):
        if prefix + SESSIONS.name in counts:
            reason = f"{prefix or 'no prefix'} is that of a run with agents, which may still go on"
            raise SettingsRejected(option, f"{reason}: copy its sessions with replay merge --to")


def _check_policy(source: KafkaSettings, policy: str, stopping: Stopping) -> None:
    """Raise `SettingsRejected` if no recorded session has the policy; read up to the first."""
    topic = source.topic_prefix + TRAJECTORIES.name
    others = set[str]()
    for item in read_topic(source, TRAJECTORIES, Skipped(), stopping=stopping):
        if isinstance(item.record, Trajectory):
            if item.record.policy == policy:
                return
            others.add(item.record.policy)
    if not others:
        raise SettingsRejected("--from", f"{topic} has no session")
    names = ", ".join(sorted(others))
    raise SettingsRejected("run.policy", f"is {policy}, but the sessions of {topic} are of {names}")


@contextmanager
def _kafka(config: RunConfig, launcher: Launcher, display: Display) -> Iterator[KafkaSettings]:
    """Yield the configured Kafka, or the one of the run whose directory holds this training's."""
    run = config.out.parent
    if config.kafka is not None:
        yield config.kafka
        return
    try:
        yield kafka_of_running(run)
        return
    except NoRunningRun:
        pass
    if not (run / KAFKA_DIR).is_dir():
        raise NoRunData(run)
    display.phase("starting Kafka")
    with embedded_broker(run / KAFKA_DIR, config) as broker:
        launcher.watch(broker)
        yield broker.settings
