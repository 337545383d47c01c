"""System: one run's processes on one Kafka, and the order in which they start and stop.

`launcher.py` owns the processes; this module knows which process needs which.
"""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from seamlessflow.config import RunConfig
from seamlessflow.infra.broker.broker import Broker, ReadyLimit
from seamlessflow.infra.broker.programs import JavaOptions
from seamlessflow.infra.clock import now_ms
from seamlessflow.infra.errors import KafkaUnavailable, SettingsRejected
from seamlessflow.infra.kafka.topics.creation import TopicOptions, create_topics
from seamlessflow.infra.network.addresses import free_port, is_open, reached_here
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.processes.child import ChildSpec
from seamlessflow.processes.cluster import remove_address, write_address
from seamlessflow.processes.launcher import MORE_TIME, Launcher, NotReady
from seamlessflow.processes.specs import (
    AGENTS,
    GATEWAY,
    MANAGER,
    REWARDS,
    SCHEDULER,
    TRAINER,
    LaunchContext,
    ProcessSpecs,
)
from seamlessflow.schemas.topics import TOPICS
from seamlessflow.watching.display import Display
from seamlessflow.watching.observer import Observer, StallReports, frozen, progress_from_now
from seamlessflow.watching.progress import RunProgress

_LOADED_TIMEOUT_S = 60.0
_SAY_EVERY_S = 30.0
_END_S = 3.0
"""Time that a broker takes to end after it has answered with its disk's fault."""


@contextmanager
def kafka_to_run_on(
    config: RunConfig, launcher: Launcher, display: Display
) -> Iterator[KafkaSettings]:
    """Yield the configured Kafka, or start an embedded broker; create all topics on it.

    Raises `TooFewSlots` if an earlier run or another program made topics with too few. If an
    embedded broker ended by itself, raises `BrokerUnusable` instead of the error from a wait for
    it.
    """
    options = TopicOptions(workers=sum("rollout" in worker.tags for worker in config.workers))
    if config.kafka is not None:
        display.phase("creating topics")
        create_topics(config.kafka, TOPICS.values(), options, launcher.stopping)
        yield config.kafka
        return
    display.phase("starting Kafka")
    with embedded_broker(config.kafka_dir, config) as broker:
        launcher.watch(broker)
        try:
            create_topics(broker.settings, TOPICS.values(), options, launcher.kafka_ended)
            yield broker.settings
        except (KafkaUnavailable, SettingsRejected) as error:
            if not launcher.stopping() and (fault := broker.fault(_END_S)) is not None:
                raise fault from error
            raise


def embedded_broker(directory: Path, config: RunConfig) -> Broker:
    """Return the embedded broker over a directory, with a configuration's limits."""
    return Broker(
        directory,
        java=JavaOptions(heap_mb=config.broker.heap_mb),
        ready=ReadyLimit(config.start_timeout_s, "start_timeout_s"),
    )


class System:
    """A configuration's processes on the first node, and the run's progress as Kafka shows it.

    Used from one thread.
    """

    def __init__(
        self, config: RunConfig, kafka: KafkaSettings, launcher: Launcher, display: Display
    ) -> None:
        # Only a port that the user set is taken: two runs on one machine must not collide.
        port = config.gateway.port if "port" in config.gateway.model_fields_set else free_port()
        self._config = config
        self._launcher = launcher
        self._display = display
        context = LaunchContext(kafka, port, dict(os.environ), node=config.head, head=config.head)
        self._specs = ProcessSpecs(config, context)
        self._port = port
        self._host = reached_here(config.gateway.host)
        self._observer = Observer(kafka, progress_from_now(config))
        self.kafka = kafka

    @contextmanager
    def running(self) -> Iterator[None]:
        """Start all processes but scheduler and trainers; on leaving, stop all of them in order."""
        try:
            with self._observer, StallReports(self.kafka) as reports:
                self._launcher.report_to(
                    lambda still: reports.send(frozen(still.name, still.limit_s, now_ms()))
                )
                for spec in self._first_specs():
                    self._launcher.start(spec)
                write_address(self._config.out, self.kafka, self._specs.gateway_url)
                yield
        finally:
            # First the address, so that no other command reaches a broker that is about to stop.
            remove_address(self._config.out)
            for names in self._stop_order():
                self._launcher.end(names)

    @property
    def gateway_url(self) -> str:
        """The gateway's URL."""
        return self._specs.gateway_url

    @property
    def progress(self) -> RunProgress:
        """The run's progress, with all records until now."""
        return self._observer.poll()

    def start_trainers(self) -> None:
        """Start the trainer, and a training process for every worker that can train."""
        for spec in self._specs.trainers():
            self._launcher.start(spec)

    def restart_scheduler(self, training: bool) -> None:
        """Start the scheduler instead of the running one.

        With `training` it issues tasks and ends with the run, else it only assigns roles.
        """
        self._launcher.end([SCHEDULER])
        specs = self._specs
        spec = specs.scheduler() if training else specs.scheduler_without_tasks()
        self._launcher.start(spec)

    def wait_until_ready(self) -> None:
        """Wait for published weights, a first role for every rollout worker, and the gateway.

        Raises `NotReady`.
        """
        rollouts = {worker.id for worker in self._config.workers if "rollout" in worker.tags}

        def missing() -> list[str]:
            progress = self.progress
            # Any role will do: a strategy may let a worker that could roll out train for good.
            late = [f"rollout of {worker}" for worker in sorted(rollouts - progress.placed)]
            weights = [] if progress.version is not None else ["weights of the trainer"]
            others = progress.others.items()
            weights += [f"weights of {name}" for name, other in others if other.version is None]
            return [
                *weights,
                *late,
                *([] if is_open(self._port, self._host) else ["answer of the gateway"]),
            ]

        begun_s = time.monotonic()
        said = 0

        def ready() -> bool:
            nonlocal said
            absent = missing()
            waited_s = time.monotonic() - begun_s
            if absent and waited_s >= (said + 1) * _SAY_EVERY_S:
                said += 1
                self._display.notice(f"still starting, {waited_s:.0f} s: {', '.join(absent)}")
            return not absent

        limit_s = self._config.start_timeout_s
        try:
            self.wait_for("start", ready, limit_s)
        except NotReady as error:
            what = f"start_timeout_s: no {', no '.join(missing())}"
            raise NotReady(what, limit_s, error.tails, MORE_TIME) from error

    def wait_for_newest_weights(self) -> None:
        """Wait until every worker in the rollout role serves the newest weights."""

        def loaded() -> bool:
            progress = self.progress
            versions = set(progress.serving.values())
            return versions == {progress.version}

        self.wait_for("the newest weights loaded", loaded, _LOADED_TIMEOUT_S)

    def wait_for_the_last_step(self) -> None:
        """Wait without a limit until the trainer reports the run's end."""
        self.wait_for("the last step", lambda: self.progress.is_finished, float("inf"))

    def wait_for(self, what: str, condition: Callable[[], bool], timeout_s: float) -> None:
        """Wait for a condition and show the progress. Raises what `Launcher.wait_for` raises."""

        def shown() -> bool:
            met = condition()
            # Also at the end: the last step may have come with it.
            self._display.progress(self._observer.progress)
            return met

        self._launcher.wait_for(what, shown, timeout_s)

    def _first_specs(self) -> list[ChildSpec]:
        specs = self._specs
        agents = [] if self._config.opened_outside else [specs.agents()]
        judges = specs.reward_workers()
        return [specs.gateway(), specs.manager(), *specs.rollouts(), *judges, *agents]

    def _stop_order(self) -> list[list[str]]:
        """Return process names in the order to stop: clients before the servers that they call."""
        names = list(self._launcher.running)
        trainers = [name for name in names if name.startswith(TRAINER)]
        rollouts = [name for name in names if name.startswith("rollout-")]
        judges = [name for name in names if name.startswith(f"{REWARDS}-")]
        return [[AGENTS], judges, [SCHEDULER], trainers, rollouts, [GATEWAY], [MANAGER]]
