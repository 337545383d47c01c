"""The processes of one run on one Kafka: started all at once, ready when everybody serves.

Owns no process itself (`launcher.py` does); knows who needs whom.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from infra.broker.broker import Broker
from infra.clock import now_ms
from infra.kafka.topics import create_topics
from infra.ports import free_port, is_open
from infra.settings import KafkaSettings
from schemas.topics import TOPICS
from seamlessflow.config import RunConfig
from seamlessflow.processes.child import ChildSpec
from seamlessflow.processes.cluster import announce, withdraw
from seamlessflow.processes.launcher import Launcher
from seamlessflow.processes.specs import AGENTS, GATEWAY, MANAGER, SCHEDULER, Children, Places
from seamlessflow.watching.display import Display
from seamlessflow.watching.observer import Observer
from seamlessflow.watching.progress import Progress

BROKER = "broker"
BROKERS_OWN_REPLICATION = -1
"""As many copies as the cluster makes of a topic by itself."""

_LOADED_TIMEOUT_S = 60.0


@contextmanager
def kafka_for(config: RunConfig, launcher: Launcher) -> Iterator[KafkaSettings]:
    """The cluster of the configuration, or an embedded broker, with all topics on it."""
    if config.kafka is not None:
        create_topics(config.kafka, TOPICS.values(), BROKERS_OWN_REPLICATION)
        yield config.kafka
        return
    with Broker(config.kafka_dir, heap_mb=config.broker.heap_mb) as broker:
        if broker.pid is not None:
            launcher.watch_memory_of(BROKER, broker.pid)
        create_topics(broker.settings, TOPICS.values())
        yield broker.settings


class System:
    """The processes of a configuration, and what is seen of them. Used from one thread."""

    def __init__(
        self, config: RunConfig, kafka: KafkaSettings, launcher: Launcher, display: Display
    ) -> None:
        port = config.gateway.port if "port" in config.gateway.model_fields_set else free_port()
        self._config = config
        self._launcher = launcher
        self._display = display
        self._children = Children(config, Places(kafka, port, dict(os.environ)))
        self._port = port
        progress = Progress(config.run.policy, config.run.steps, since_ms=now_ms())
        self._observer = Observer(kafka, progress)
        self.kafka = kafka

    @contextmanager
    def running(self) -> Iterator[None]:
        """Starts everything but scheduler and trainers; at the end stops all, in order."""
        try:
            with self._observer:
                for spec in self._lasting():
                    self._launcher.start(spec)
                announce(self._config.out, self.kafka, self._children.gateway_url)
                yield
        finally:
            withdraw(self._config.out)
            for names in self._order_of_ending():
                self._launcher.end(names)

    @property
    def progress(self) -> Progress:
        """What is known now."""
        return self._observer.poll()

    def start_trainers(self) -> None:
        """Starts the trainer of every worker that can train."""
        for spec in self._children.trainers():
            self._launcher.start(spec)

    def schedule(self, training: bool) -> None:
        """Puts the scheduler in charge: of the training, or only of roles."""
        self._launcher.end([SCHEDULER])
        children = self._children
        spec = children.scheduler() if training else children.scheduler_without_tasks()
        self._launcher.start(spec)

    def wait_until_ready(self) -> None:
        """Returns when there are weights, every worker has rolled out and the gateway answers.

        Raises `NotReady`.
        """
        rollouts = {worker.id for worker in self._config.workers if "rollout" in worker.tags}

        def ready() -> bool:
            progress = self.progress
            served = rollouts <= progress.has_served
            return progress.version is not None and served and is_open(self._port)

        what = "weights published, all workers rolling out, gateway answering"
        self.wait_for(what, ready, self._config.start_timeout_s)

    def wait_for_newest_weights(self) -> None:
        """Returns when everybody who rolls out does so with the newest weights."""

        def loaded() -> bool:
            progress = self.progress
            versions = set(progress.serving.values())
            return versions == {progress.version}

        self.wait_for("the newest weights loaded", loaded, _LOADED_TIMEOUT_S)

    def wait_for_the_last_step(self) -> None:
        """Returns when the trainer says that the run is finished; takes as long as it takes."""
        self.wait_for("the last step", lambda: self.progress.is_finished, float("inf"))

    def wait_for(self, what: str, condition: Callable[[], bool], timeout_s: float) -> None:
        """Waits for a condition, showing how things are. Raises what `Launcher.wait_for` does."""

        def shown() -> bool:
            if condition():
                return True
            self._display.progress(self._observer.progress)
            return False

        self._launcher.wait_for(what, shown, timeout_s)

    def _lasting(self) -> list[ChildSpec]:
        children = self._children
        return [children.gateway(), children.manager(), *children.rollouts(), children.agents()]

    def _order_of_ending(self) -> list[list[str]]:
        """Those who ask before those who answer."""
        names = list(self._launcher.running)
        trainers = [name for name in names if name.startswith("trainer-")]
        rollouts = [name for name in names if name.startswith("rollout-")]
        return [[AGENTS], [SCHEDULER], trainers, rollouts, [GATEWAY], [MANAGER]]
