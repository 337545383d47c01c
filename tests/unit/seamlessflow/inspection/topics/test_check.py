"""The comparison of topics with the contract: each fault is named with its remedy."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from seamlessflow.infra.kafka.topics.existing import FoundTopic
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.inspection.topics.contract import TopicFault, faults
from seamlessflow.schemas.topics import TOPICS, Topic

KAFKA = KafkaSettings(bootstrap_servers="a:1", topic_prefix="x.")
BROKERS = 3


def as_contract(name: str, topic: Topic) -> FoundTopic:
    config = {
        "min.insync.replicas": "2",
        "cleanup.policy": topic.cleanup,
        "retention.ms": str(topic.retention_ms),
        "retention.bytes": "-1",
        "max.message.bytes": str(topic.max_record_bytes),
        "message.timestamp.type": "CreateTime",
        "unclean.leader.election.enable": "false",
    }
    return FoundTopic(f"x.{name}", topic.partitions, 3, config)


def contract() -> dict[str, FoundTopic]:
    return {
        f"x.{name}": as_contract(name, topic)
        for topic in TOPICS.values()
        for name in (topic.name, topic.dead_letters)
    }


def found_faults(changed: Mapping[str, FoundTopic], brokers: int = BROKERS) -> list[TopicFault]:
    return list(faults(KAFKA, {**contract(), **changed}, brokers))


def configured(name: str, **config: str) -> dict[str, FoundTopic]:
    topic = contract()[f"x.{name}"]
    values = {key.replace("_", "."): value for key, value in config.items()}
    return {topic.name: replace(topic, config={**topic.config, **values})}


def test_topics_of_the_contract_have_no_fault() -> None:
    assert found_faults({}) == []


@pytest.mark.parametrize(
    ("topic", "name", "value", "wanted"),
    [
        ("sessions", "retention_ms", "3600000", "-1"),
        ("sessions", "retention_bytes", "1000", "-1"),
        ("sessions", "cleanup_policy", "compact", "delete"),
        ("fleet", "cleanup_policy", "delete", "compact"),
        ("requests", "max_message_bytes", "1048588", "8388608"),
        ("trajectories", "min_insync_replicas", "1", "2"),
        ("control", "message_timestamp_type", "LogAppendTime", "CreateTime"),
        ("requests.dlq", "max_message_bytes", "1048588", "8388608"),
    ],
)
def test_a_setting_that_differs_is_named_with_its_remedy(
    topic: str, name: str, value: str, wanted: str
) -> None:
    [fault] = found_faults(configured(topic, **{name: value}))
    key = name.replace("_", ".")
    assert (fault.topic, fault.fault.split(", with")[0]) == (
        f"x.{topic}",
        f"{key} {value}, not {wanted}",
    )
    assert fault.remedy == (
        "kafka-configs.sh --bootstrap-server a:1 --alter --entity-type topics "
        f"--entity-name x.{topic} --add-config {key}={wanted}"
    )


@pytest.mark.parametrize("kept", [{"retention_ms": "-1"}, {"max_message_bytes": "99999999"}])
def test_more_than_the_contract_has_is_no_fault(kept: dict[str, str]) -> None:
    assert found_faults(configured("requests", **kept)) == []


def test_partitions_may_differ_but_where_they_must_be_equal_or_one() -> None:
    topics = contract()
    assert found_faults({"x.prompts": replace(topics["x.prompts"], partitions=5)}) == []
    [sessions] = found_faults({"x.sessions": replace(topics["x.sessions"], partitions=31)})
    assert sessions.fault == "31 partitions, not 32 as x.requests"
    control = found_faults({"x.control": replace(topics["x.control"], partitions=3)})
    assert "3 partitions, not 1" in {fault.fault for fault in control}
    [letters] = found_faults({"x.tasks.dlq": replace(topics["x.tasks.dlq"], partitions=2)})
    assert "--topic x.tasks.dlq --alter --partitions 16" in letters.remedy


def test_copies_are_judged_by_the_number_of_brokers() -> None:
    alone = replace(contract()["x.sessions"], replication=1)
    alone = replace(alone, config={**alone.config, "min.insync.replicas": "1"})
    [fault] = found_faults({"x.sessions": alone})
    assert "replication 1, not 3" in fault.fault
    assert found_faults({"x.sessions": alone}, brokers=1) == []
