"""A run against an encrypted Kafka, each kind of process with a user that may do no more than the
list of its permissions says.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
import yaml

from seamlessflow.access import (
    AGENTS,
    GATEWAY,
    MANAGER,
    OBSERVER,
    REWARDS,
    ROLLOUT,
    SCHEDULER,
    TRAINER,
    TRAINING,
    needs,
    permissions,
)
from seamlessflow.config_file import parse
from seamlessflow.infra.errors import DeliveryFailed, KafkaRefused, TopicMissing
from seamlessflow.infra.kafka.client import BEGINNING
from seamlessflow.infra.kafka.producer import Producer
from seamlessflow.infra.kafka.reader import Reader
from seamlessflow.infra.kafka.start.cluster import find_cluster
from seamlessflow.infra.kafka.topics.creation import create_topics
from seamlessflow.infra.kafka.topics.permissions import grant
from seamlessflow.infra.kafka.unreadable import Skipped
from seamlessflow.infra.kafka.whole_topic import read_topic
from seamlessflow.infra.network.addresses import free_port
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.inspection.topics.contract import topic_faults
from seamlessflow.inspection.topics.inspector import TopicInspector, TopicStateSettings
from seamlessflow.processes.child import ChildSpec
from seamlessflow.processes.launcher import Launcher
from seamlessflow.processes.specs import LaunchContext, ProcessSpecs
from seamlessflow.processes.stopping import Stop
from seamlessflow.processes.supervisor import Supervisor
from seamlessflow.schemas import records as r
from seamlessflow.schemas.topics import CONTROL, SESSIONS, TOPICS, TRAJECTORIES, Topic
from tests.builders.brokers.secured import as_user, secured_broker
from tests.e2e.runs.short_run import short_run
from tests.waiting import until

pytestmark = pytest.mark.slow
LIMIT_S = 240
PREFIX = "secured."
GROUPS = TopicStateSettings()
ACCESS = needs(GROUPS.manager.group, GROUPS.agents.group, GROUPS.rewards.group)
WRITERS = [kind for kind in ACCESS if kind != OBSERVER]
AGENT = """
import httpx

async def run(task, session):
    async with httpx.AsyncClient(base_url=session.base_url, timeout=60) as client:
        answer = await client.post(
            "/chat/completions",
            headers={"authorization": f"Bearer {session.api_key}"},
            json={"model": session.model, "messages": [{"role": "user", "content": "key 7"}]},
        )
    return float(len(answer.json()["id"]) and int(session.session_id.split(".")[1]) % 2)
"""


@dataclass(frozen=True)
class Secured:
    """A cluster with topics, and the settings of a user for each kind of process."""

    owner: KafkaSettings
    users: Mapping[str, KafkaSettings]


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    passwords = {kind: f"the password of {kind}" for kind in ("owner", *ACCESS)}
    with secured_broker(tmp_path_factory.mktemp("secured"), passwords) as made:
        kafka = made.model_copy(update={"topic_prefix": PREFIX})
        users = {user: as_user(kafka, user, word) for user, word in passwords.items()}
        owner = users.pop("owner")
        create_topics(owner, TOPICS.values())
        for kind, access in ACCESS.items():
            grant(owner, kind, permissions(access, PREFIX))
        for kind, access in ACCESS.items():
            until(lambda: may_see(users[kind], access.reads), kind)  # noqa: B023
        yield Secured(owner, users)


def may_see(kafka: KafkaSettings, topics: tuple[Topic, ...]) -> bool:
    """Return False while the broker has not learnt of the user's permissions."""
    try:
        find_cluster(kafka, topics)
    except KafkaRefused:
        return False
    return True


def specs(secured: Secured, directory: Path) -> list[ChildSpec]:
    """Return one process of each kind, with the user of its kind."""
    values = yaml.safe_load(short_run(directory, AGENT, steps=1).read_text())
    values["workers"] = [{"id": "w0", "tags": ["rollout", "train"]}]
    values["run"] |= {"groups_per_step": 1, "group_size": 2}
    values["rollout"] = {"engine": "scripted"}
    values["rewards"] = {"judges": {"brief": {"command": ["echo", "1"]}}}
    values["trainer"] = {**values.get("trainer", {}), "rewards": {"reward": 1.0, "brief": 1.0}}
    config, port = parse(values), free_port()
    environment = os.environ | {"PYTHONPATH": str(directory)}

    def specs_as(kind: str) -> ProcessSpecs:
        return ProcessSpecs(config, LaunchContext(secured.users[kind], port, environment))

    return [
        specs_as(GATEWAY).gateway(),
        specs_as(MANAGER).manager(),
        *specs_as(ROLLOUT).rollouts(),
        *specs_as(REWARDS).reward_workers(),
        specs_as(AGENTS).agents(),
        specs_as(SCHEDULER).scheduler(),
        specs_as(TRAINER).trainer(),
        *specs_as(TRAINING).trainers()[1:],
    ]


def finished(observer: KafkaSettings) -> bool:
    read = read_topic(observer, CONTROL, Skipped())
    return any(isinstance(item.record, r.RunFinished) for item in read)


def refusals(kafka: KafkaSettings, kind: str, topics: list[Topic]) -> list[str]:
    """Return the names of those topics that the user may not write."""
    refused: dict[str, str] = {}
    producer = Producer(kafka, f"{kind}-intruder")

    def note(topic: str, error: DeliveryFailed | None, _: int) -> None:
        refused[topic] = "" if error is None else error.reason

    try:
        for topic in topics:
            producer.send_bytes(
                topic.name,
                b"intruding",
                partition=0,
                on_delivery=partial(note, topic.name),
            )
        until(lambda: len(refused) == len(topics), "answers of Kafka")
    finally:
        producer.abandon()
    return [name for name, reason in refused.items() if "authorization" in reason.lower()]


def test_every_kind_of_process_does_its_work_with_its_permissions_alone(
    secured: Secured, tmp_path: Path
) -> None:
    ended: list[str] = []
    supervisor = Supervisor(parse({}).restarts, ended.append)
    with Launcher(tmp_path / "logs", Stop(), supervisor) as launcher:
        for spec in specs(secured, tmp_path):
            launcher.start(spec)
        observer = secured.users[OBSERVER]
        launcher.wait_for("the end of the run", lambda: finished(observer), LIMIT_S)
        assert ended == []
        logs = {path.stem: path.read_text() for path in (tmp_path / "logs").iterdir()}
    assert {name for name, text in logs.items() if "authorization" in text.lower()} == set()
    trained = [item.record for item in read_topic(observer, TRAJECTORIES, Skipped())]
    assert len(trained) >= 2
    with TopicInspector(TopicStateSettings(kafka=observer)) as inspector:
        assert {state.name for state in inspector.look()} == set(TOPICS)
    topic_faults(observer)


@pytest.mark.parametrize("kind", WRITERS)
def test_a_process_cannot_write_a_topic_that_is_not_its_own(kind: str, secured: Secured) -> None:
    foreign = [topic for topic in TOPICS.values() if topic not in ACCESS[kind].writes]
    refused = refusals(secured.users[kind], kind, foreign)
    assert sorted(refused) == sorted(topic.name for topic in foreign)


@pytest.mark.parametrize(
    ("kind", "topic"), [(ROLLOUT, TRAJECTORIES), (ROLLOUT, SESSIONS), (GATEWAY, SESSIONS)]
)
def test_a_process_cannot_read_a_topic_that_is_not_its_own(
    kind: str, topic: Topic, secured: Secured
) -> None:
    reader = Reader(secured.users[kind], f"{kind}-intruder")
    reader.assign({(topic.name, 0): BEGINNING})
    try:
        # Kafka hides a topic from a user without any permission; one who may write sees it.
        with pytest.raises((KafkaRefused, TopicMissing)):
            reader.ends([(topic.name, 0)])
            until(lambda: bool(reader.poll(0.1)), "an answer of Kafka")
    finally:
        reader.close()
