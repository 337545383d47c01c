"""Managers on brokers with and without the new protocol of consumer groups."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from seamlessflow.infra.broker.broker import Broker
from seamlessflow.infra.broker.programs import SHORT_LIVED
from seamlessflow.infra.clock import never
from seamlessflow.infra.errors import GroupRefused, KafkaUnavailable, MemberReplaced
from seamlessflow.infra.kafka.reader import Reader
from seamlessflow.infra.kafka.start.group import membership
from seamlessflow.infra.kafka.topics.creation import create_topics
from seamlessflow.infra.network.addresses import HOST, free_port
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.schemas.topics import REQUESTS
from tests.builders.brokers.older import older_broker
from tests.builders.own_topics import small
from tests.builders.records.content import message
from tests.builders.trajectories.manager_system import ManagerSystem, manager_system
from tests.waiting import until

pytestmark = pytest.mark.slow
WITHOUT = {"group.coordinator.rebalance.protocols": "classic"}


def test_a_broker_with_the_new_protocol_is_joined_by_it(kafka: KafkaSettings) -> None:
    create_topics(kafka, small(REQUESTS))
    assert membership(kafka, "managers", REQUESTS, "0", never) == {"group.protocol": "consumer"}


def test_a_broker_without_the_new_protocol_is_joined_by_the_classic_one() -> None:
    with older_broker(REQUESTS.name) as kafka:
        options = membership(kafka, "managers", REQUESTS, None, never)
        assert options["group.protocol"] == "classic"


def test_a_coordinator_that_does_not_answer_says_nothing_about_the_protocol() -> None:
    away = KafkaSettings(bootstrap_servers=f"{HOST}:{free_port()}", wait_s=1)
    with pytest.raises(KafkaUnavailable, match="no partitions from the coordinator"):
        membership(away, "managers", REQUESTS, None, never)


def test_the_setting_decides_without_a_probe(kafka: KafkaSettings) -> None:
    chosen = kafka.model_copy(update={"group_protocol": "classic", "session_timeout_s": 6})
    options = membership(chosen, "managers", REQUESTS, "manager-0", never)
    assert options["group.protocol"] == "classic"
    assert options["session.timeout.ms"] == 6_000
    assert options["group.instance.id"] == f"{kafka.topic_prefix}manager-0"


def test_managers_share_and_take_over_on_a_broker_without_the_new_protocol(tmp_path: Path) -> None:
    with Broker(tmp_path / "kafka", java=SHORT_LIVED, properties=WITHOUT) as broker:
        options = membership_once(broker.settings)
        assert options["group.protocol"] == "classic"
        with manager_system(broker.settings, tmp_path) as system:
            first = system.start_manager("0", SEAMLESSFLOW_KAFKA__SESSION_TIMEOUT_S="6")
            system.announce("w0", 3)
            served(system, [f"a{n}" for n in range(6)])
            system.start_manager("1", SEAMLESSFLOW_KAFKA__SESSION_TIMEOUT_S="6")
            served(system, [f"b{n}" for n in range(6)])
            ended_by_force(first)
            served(system, [f"c{n}" for n in range(6)])
            assert system.take("trajectories") == []


def test_a_member_that_its_group_refuses_ends_and_says_what_to_mend(tmp_path: Path) -> None:
    limits: dict[str, str | int] = {"group.max.size": 1, "group.min.session.timeout.ms": 8_000}
    with Broker(tmp_path / "kafka", java=SHORT_LIVED, properties=limits) as broker:
        create_topics(broker.settings, small(REQUESTS))
        with member(broker.settings, session_timeout_s=6) as hasty:
            refused(hasty, "Invalid session timeout.*kafka.session_timeout_s")
        with member(broker.settings) as first, member(broker.settings) as second:
            join(first)
            refused(second, "maximum size.*group.max.size")


def test_a_member_with_another_strategy_than_the_group_ends(kafka: KafkaSettings) -> None:
    create_topics(kafka, small(REQUESTS))
    with member(kafka) as first, member(kafka, strategy="range") as second:
        join(first)
        refused(second, "Inconsistent group protocol.*kafka.group_protocol")


def test_what_kafka_reports_of_a_group_is_logged_with_its_name(
    kafka: KafkaSettings, caplog: pytest.LogCaptureFixture
) -> None:
    with member(kafka) as reader:
        reader.subscribe(["missing"])
        words = "Kafka reports UNKNOWN_TOPIC_OR_PART"
        until(lambda: bool(reader.poll(0.1)) or words in caplog.text, "the line")


def test_of_two_members_of_one_name_the_older_ends_for_good(kafka: KafkaSettings) -> None:
    create_topics(kafka, small(REQUESTS))
    with member(kafka, instance="manager-0") as older, member(kafka, instance="manager-0") as newer:
        join(older)
        newer.subscribe([REQUESTS.name])
        with pytest.raises(MemberReplaced, match="manager-0"):
            until(lambda: bool(newer.poll(0.05) or older.poll(0.05)), "its end")


def membership_once(kafka: KafkaSettings) -> dict[str, object]:
    create_topics(kafka, small(REQUESTS))
    return membership(kafka, "managers", REQUESTS, None, never)


@contextmanager
def member(
    kafka: KafkaSettings,
    session_timeout_s: float = 10,
    instance: str | None = None,
    strategy: str = "cooperative-sticky",
) -> Iterator[Reader]:
    """Yield a reader that may join the group by the classic protocol."""
    update = {"group_protocol": "classic", "session_timeout_s": session_timeout_s}
    chosen = kafka.model_copy(update=update)
    joins = membership(chosen, "managers", REQUESTS, instance, never)
    joins["partition.assignment.strategy"] = strategy
    reader = Reader(chosen, "member", group="managers", **joins)
    try:
        yield reader
    finally:
        reader.close()


def join(reader: Reader) -> None:
    """Make the reader a member, with partitions."""
    partitions: list[object] = []
    reader.subscribe([REQUESTS.name], partitions.extend)
    until(lambda: bool(reader.poll(0.05) or partitions), "its partitions")


def refused(reader: Reader, reason: str) -> None:
    reader.subscribe([REQUESTS.name])
    with pytest.raises(GroupRefused, match=reason):
        until(lambda: bool(reader.poll(0.1)), "the refusal")


def ended_by_force(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


def served(system: ManagerSystem, sessions: list[str]) -> None:
    """Let each session have a turn and its one trajectory."""
    for name in sessions:
        system.open_session(name)
        asked = system.request(name, [message("user", "key 1")])
        system.complete(system.generate(asked.turn_id), "code 1")
        assert system.finished(asked.turn_id).status == 200
        assert system.reward_and_close(name, 1.0).turns == 1
