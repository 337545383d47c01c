"""Topics: partitions of new ones, those that a cluster has, and prefixes of their names."""

from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError

from seamlessflow.infra.errors import PartitionsDiffer, SettingsRejected, TopicMismatch
from seamlessflow.infra.kafka.topics.creation import check_prefix, is_fenced_broker
from seamlessflow.infra.kafka.topics.existing import joined_answers
from seamlessflow.infra.kafka.topics.partitions import TooFewSlots, slots_asked, topic_counts
from seamlessflow.schemas.topics import CONTROL, ENDED_SESSIONS, PROMPTS, REQUESTS, SESSIONS, TOPICS

TOGETHER = (REQUESTS, SESSIONS, ENDED_SESSIONS)


def together(count: int) -> dict[str, int]:
    return {topic.name: count for topic in TOGETHER}


def test_new_topics_have_the_counts_of_the_contract() -> None:
    contract = {topic.name: topic.partitions for topic in TOPICS.values()}
    assert topic_counts(TOPICS.values(), {}, {}) == contract


def test_a_count_is_that_of_the_topic_that_exists_or_the_one_asked_for() -> None:
    assert topic_counts([PROMPTS], {}, {"x.prompts": 5}, "x.") == {"prompts": 5}
    assert topic_counts([PROMPTS], {"prompts": 7}, {"prompts": 5}, "x.") == {"prompts": 7}
    with pytest.raises(TopicMismatch, match="prompts has 5 partitions, 7 are needed"):
        topic_counts([PROMPTS], {"prompts": 7}, {"prompts": 5})


@pytest.mark.parametrize("existing", [("requests", "sessions"), ("sessions",), ("ended_sessions",)])
def test_topics_that_must_be_equal_follow_those_that_exist(existing: tuple[str, ...]) -> None:
    assert topic_counts(TOGETHER, {}, dict.fromkeys(existing, 64)) == together(64)


@pytest.mark.parametrize("asked", [topic.name for topic in TOGETHER])
def test_topics_that_must_be_equal_follow_the_one_count_asked_for(asked: str) -> None:
    assert topic_counts(TOGETHER, {asked: 64}, {}) == together(64)


@pytest.mark.parametrize(
    ("asked", "existing"),
    [
        ({"requests": 64, "ended_sessions": 32}, {}),
        ({"ended_sessions": 32}, {"requests": 64}),
        ({}, {"requests": 64, "ended_sessions": 32}),
    ],
)
def test_two_counts_where_one_is_needed_are_both_named(
    asked: dict[str, int], existing: dict[str, int]
) -> None:
    with pytest.raises(PartitionsDiffer, match="requests 64, ended_sessions 32"):
        topic_counts(TOGETHER, asked, existing)


def test_a_topic_with_one_order_has_one_partition() -> None:
    for asked, existing in (({"control": 2}, {}), ({}, {"control": 2})):
        with pytest.raises(TopicMismatch, match="control has 2 partitions, 1 are needed"):
            topic_counts([CONTROL], asked, existing)


@pytest.mark.parametrize(("workers", "slots"), [(0, {}), (51, {}), (64, {"prompts": 80})])
def test_a_new_topic_has_a_slot_for_each_worker_and_some_to_spare(
    workers: int, slots: dict[str, int]
) -> None:
    assert slots_asked(workers, {}) == slots
    assert slots_asked(workers, {"x.prompts": workers}, "x.") == {}


def test_workers_that_would_get_no_slot_are_refused_with_the_numbers_and_the_remedy() -> None:
    reason = "x.prompts has 64 partitions, and 125 workers .* --topic x.prompts --partitions 156"
    with pytest.raises(TooFewSlots, match=reason):
        slots_asked(125, {"x.prompts": 64}, "x.")


def test_a_topic_that_only_one_of_two_brokers_knows_yet_is_not_there() -> None:
    described = SimpleNamespace(name="a", partitions=[SimpleNamespace(replicas=[1, 2])])
    config = {"retention.ms": SimpleNamespace(value=-1)}
    assert joined_answers({"a": described, "b": None}, {"a": None}) == {}
    assert joined_answers({"a": described}, {"a": config})["a"].config == {"retention.ms": "-1"}


@pytest.mark.parametrize("prefix", ["again.", "run-7_", "a.b-"])
def test_a_name_with_a_mark_at_its_end_is_a_prefix(prefix: str) -> None:
    check_prefix("--to", prefix)


@pytest.mark.parametrize("prefix", ["", ".", "again", "a/b.", "../a.", "a b."])
def test_what_runs_into_the_names_of_topics_or_is_no_name_is_refused(prefix: str) -> None:
    with pytest.raises(SettingsRejected, match="is no prefix, such as again"):
        check_prefix("--to", prefix)


@pytest.mark.parametrize(
    ("code", "copies", "brokers", "passes"),
    [
        (KafkaError.INVALID_REPLICATION_FACTOR, 1, 1, True),
        (KafkaError.INVALID_REPLICATION_FACTOR, 3, 3, True),
        (KafkaError.INVALID_REPLICATION_FACTOR, -1, 1, True),
        (KafkaError.INVALID_REPLICATION_FACTOR, 3, 1, False),
        (KafkaError.INVALID_REPLICATION_FACTOR, 1, 0, False),
        (KafkaError.INVALID_REPLICATION_FACTOR, -1, 0, False),
        (KafkaError.INVALID_PARTITIONS, 1, 1, False),
    ],
)
def test_too_few_brokers_are_waited_for_only_if_the_cluster_lists_enough(
    code: int, copies: int, brokers: int, passes: bool
) -> None:
    assert is_fenced_broker(code, copies, brokers) is passes
