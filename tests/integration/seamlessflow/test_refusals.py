"""A cluster that refuses a user: each command and process says so at once, in one line."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBinding, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType

from seamlessflow.demo.model import make_model
from seamlessflow.infra.errors import ExitStatus
from seamlessflow.infra.kafka.client import client_options
from seamlessflow.infra.kafka.topics.creation import create_topics
from seamlessflow.infra.kafka.topics.existing import partition_counts
from seamlessflow.infra.network.addresses import HOST, free_port
from seamlessflow.infra.settings import KafkaSettings
from tests.builders.brokers.secured import USERS, as_user, secured_broker
from tests.builders.own_topics import SMALL
from tests.builders.processes import PROCESSES, settings
from tests.waiting import until

pytestmark = pytest.mark.slow
LIMIT_S = 120
WRONG = "not the password"
COMMANDS = (("topics", "list"), ("topics", "create"), ("topics", "check"), ("show", "a-session"))
REFUSED = [
    *(("owner", WRONG, command) for command in COMMANDS),
    # The list shows the topics that a user may see: none.
    *(("guest", USERS["guest"], command) for command in COMMANDS if "list" not in command),
]


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaSettings]:
    with secured_broker(tmp_path_factory.mktemp("secured")) as made:
        create_topics(as_user(made, "owner", USERS["owner"]), SMALL.values())
        yield made


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with a model, in which every process could start."""
    directory = tmp_path_factory.mktemp("home")
    (directory / "model").mkdir()
    make_model(directory / "model", 0)
    return directory


def ran(module: str, kafka: KafkaSettings, directory: Path, *arguments: str) -> tuple[int, str]:
    """Run a program to its end; return its status and the last line that it wrote."""
    status, said = output(module, kafka, directory, *arguments)
    return status, said.strip().splitlines()[-1]


def output(module: str, kafka: KafkaSettings, directory: Path, *arguments: str) -> tuple[int, str]:
    """Run a program to its end; return its status and all that it wrote."""
    environment = os.environ | settings(kafka, directory) | {"COLUMNS": "200"}
    environment["SEAMLESSFLOW_KAFKA__OPTIONS"] = orjson.dumps(kafka.options).decode()
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    said = done.stdout + done.stderr
    assert "Traceback" not in said, said
    assert WRONG not in said
    return done.returncode, said


def let_see_topics(owner: KafkaSettings, user: str) -> None:
    """Permit a user to describe all topics, and nothing else."""
    admin = AdminClient(client_options(owner))
    binding = AclBinding(
        *(ResourceType.TOPIC, "*", ResourcePatternType.LITERAL, f"User:{user}", "*"),
        *(AclOperation.DESCRIBE, AclPermissionType.ALLOW),
    )
    for done in admin.create_acls([binding]).values():
        done.result(LIMIT_S)


@pytest.mark.parametrize("module", PROCESSES)
def test_a_wrong_password_ends_a_process_at_once(
    module: str, kafka: KafkaSettings, home: Path
) -> None:
    status, words = ran(module, as_user(kafka, "owner", WRONG), home)
    assert status == ExitStatus.LASTING
    assert f"Kafka at {kafka.bootstrap_servers} refused this process" in words
    assert "SEAMLESSFLOW_KAFKA__OPTIONS" in words


@pytest.mark.parametrize("module", PROCESSES)
def test_a_missing_permission_ends_a_process_with_the_topic(
    module: str, kafka: KafkaSettings, home: Path
) -> None:
    status, words = ran(module, as_user(kafka, "guest", USERS["guest"]), home)
    assert status == ExitStatus.LASTING
    assert "topic " in words
    assert "permissions (ACL)" in words


@pytest.mark.parametrize(("user", "password", "arguments"), REFUSED)
def test_a_command_that_is_refused_says_so_in_one_line(
    user: str, password: str, arguments: tuple[str, ...], kafka: KafkaSettings, home: Path
) -> None:
    status, words = ran("seamlessflow", as_user(kafka, user, password), home, *arguments)
    assert status != 0
    assert "refused" in words
    assert "SEAMLESSFLOW_KAFKA__OPTIONS" in words


def test_the_doctor_shows_the_refusal_without_the_password(
    kafka: KafkaSettings, home: Path
) -> None:
    status, words = ran("seamlessflow", as_user(kafka, "owner", WRONG), home, "doctor")
    assert status != 0
    assert "__OPTIONS" in words


def test_a_user_who_may_see_no_topic_is_not_told_that_there_is_none(
    kafka: KafkaSettings, home: Path
) -> None:
    status, said = ran("seamlessflow", as_user(kafka, "guest", USERS["guest"]), home, *COMMANDS[0])
    assert status == 0
    assert said.startswith("none that this user may see")


def test_a_user_who_may_see_topics_and_no_group_gets_the_table_that_says_so(
    kafka: KafkaSettings, home: Path
) -> None:
    let_see_topics(as_user(kafka, "owner", USERS["owner"]), "visitor")
    visitor = as_user(kafka, "visitor", USERS["visitor"])
    until(lambda: len(partition_counts(visitor)) > 0, "the permission", LIMIT_S)
    status, listed = output("seamlessflow", visitor, home, "topics", "list")
    assert status == 0
    assert "trajectory-managers reads requests: not permitted to describe the group" in listed
    assert "│ not permitted │" in listed


@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
def test_a_wrong_address_is_named(arguments: tuple[str, ...], home: Path) -> None:
    nowhere = KafkaSettings(bootstrap_servers=f"{HOST}:{free_port()}", wait_s=1)
    status, words = ran("seamlessflow", nowhere, home, *arguments)
    assert status != 0
    assert f"no Kafka broker answered at {nowhere.bootstrap_servers}" in words
