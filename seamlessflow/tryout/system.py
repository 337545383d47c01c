"""A tryout's processes: Kafka, gateway, manager and scheduler as in a run, and one worker.

The policy has a tokenizer and no weights. The tokenizer is the configured model's, or a small one
that code makes.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import httpx

from seamlessflow.config import RunConfig
from seamlessflow.infra.broker.broker import Broker, ReadyLimit
from seamlessflow.infra.broker.programs import SHORT_LIVED
from seamlessflow.infra.clock import now_ms
from seamlessflow.infra.kafka.producer import Producer
from seamlessflow.infra.kafka.topics.creation import TopicOptions, create_topics
from seamlessflow.infra.network.addresses import free_port
from seamlessflow.infra.rendering.renderer import Renderer
from seamlessflow.infra.rendering.settings import RendererSettings
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.infra.weights.versions import PublishedWeights
from seamlessflow.processes.launcher import Launcher
from seamlessflow.processes.specs import LaunchContext, ProcessSpecs
from seamlessflow.processes.stopping import Stop
from seamlessflow.processes.supervisor import Supervisor
from seamlessflow.producers.gateway.calls.keys import derived_admin_key
from seamlessflow.schemas.records import PolicyWeights, WeightsPublished
from seamlessflow.schemas.topics import CONTROL, FLEET, TOPICS, fleet_key
from seamlessflow.trainer.settings import TrainerSection, TrainerSettings
from seamlessflow.trainer.steps.publication import Publication
from seamlessflow.tryout.worker import SaidAnswers, SpeakingWorker

_LINEAGE = "tryout"
_CALL_S = 10.0


@dataclass(frozen=True)
class TryoutSystem:
    """Processes that run, and the answers that their worker gives."""

    config: RunConfig
    kafka: KafkaSettings
    launcher: Launcher
    gateway_url: str
    worker: SpeakingWorker
    answers: SaidAnswers
    admin_key: str = field(repr=False)

    def check(self) -> None:
        """Raise what ended a process or the worker, and `Interrupted` if asked to stop."""
        self.launcher.check()
        if self.worker.error is not None:
            raise self.worker.error

    def wait_for(self, what: str, condition: Callable[[], bool]) -> None:
        """Wait for a condition. Raises `NotReady`, and what `check` raises."""

        def met() -> bool:
            self.check()
            return condition()

        self.launcher.wait_for(what, met, self.config.start_timeout_s)


@contextmanager
def tryout_system(
    config: RunConfig, stop: Stop, notice: Callable[[str], object]
) -> Iterator[TryoutSystem]:
    """Yield the processes once a call was answered; end them in order.

    `config` is only for the tryout: all its files lie in its `out`. `notice` is called for
    restarts.
    """
    supervisor = Supervisor(config.restarts, notice)
    with (
        # Kafka ends last: the scheduler would wait for it.
        Broker(
            config.kafka_dir, java=SHORT_LIVED, ready=ReadyLimit(config.start_timeout_s)
        ) as broker,
        Launcher(config.logs_dir, stop, supervisor) as launcher,
    ):
        kafka = broker.settings
        launcher.watch(broker)
        create_topics(kafka, TOPICS.values(), TopicOptions(workers=1), launcher.kafka_ended)
        specs = ProcessSpecs(config, LaunchContext(kafka, free_port(), dict(os.environ)))
        for spec in (specs.gateway(), specs.manager(), specs.scheduler_without_tasks()):
            launcher.start(spec)
        weights = _published(config, kafka, launcher)
        renderer = Renderer.load(
            Path(weights.tokenizer_directory), RendererSettings.from_json(weights.renderer)
        )
        answers = SaidAnswers(renderer)
        with SpeakingWorker(kafka, config.run.policy, answers) as worker:
            key = derived_admin_key(config.gateway.secret.get_secret_value())
            system = TryoutSystem(
                config, kafka, launcher, specs.gateway_url, worker, answers, admin_key=key
            )
            system.wait_for("the first answer", lambda: _answers(system))
            yield system


def _published(config: RunConfig, kafka: KafkaSettings, launcher: Launcher) -> PolicyWeights:
    """Announce the policy as version 0, whose only files are its tokenizer's."""
    settings = TrainerSettings(
        kafka=kafka,
        data_dir=config.out,
        run=config.run.model_dump(),
        policy=config.policy,
        trainer=TrainerSection(tags=("train",)),
    )
    publication = Publication(settings)
    publication.prepare()
    made = publication.policy_weights(PublishedWeights(0, 0, "", ""), now_ms())
    files = PublishedWeights(0, 0, made.tokenizer_directory, "")
    weights = replace(made, directory=files.directory)
    announced = WeightsPublished(
        at_ms=now_ms(), policy=config.run.policy, lineage=_LINEAGE, **asdict(files)
    )
    producer = Producer(kafka, "tryout")
    try:
        producer.send(CONTROL.name, announced)
        producer.send(FLEET.name, weights, key=fleet_key(weights))
        producer.settle(launcher.kafka_ended)
    finally:
        producer.close()
    return weights


def _answers(system: TryoutSystem) -> bool:
    """Return whether a call in a new session is answered."""
    headers = {"authorization": f"Bearer {system.admin_key}"}
    policy = system.config.run.policy
    asked = {"model": policy, "messages": [{"role": "user", "content": "?"}], "max_tokens": 2}
    try:
        with httpx.Client(timeout=_CALL_S, trust_env=False) as client:
            body = {"policy": policy, "purpose": "explore"}
            url = f"{system.gateway_url}/sessions"
            opened = client.post(url, json=body, headers=headers).raise_for_status().json()
            session = {"authorization": f"Bearer {opened['api_key']}"}
            path = f"{opened['base_url']}/chat/completions"
            client.post(path, json=asked, headers=session).raise_for_status()
            name = opened["session_id"]
            client.post(f"{url}/{name}/close", json={}, headers=headers).raise_for_status()
    except httpx.HTTPError:
        return False
    return True
