"""Topics found on a cluster, from the answers of two brokers."""

from types import SimpleNamespace

from seamlessflow.infra.kafka.topics.found import joined_answers


def test_a_topic_that_only_one_of_two_brokers_knows_yet_is_not_there() -> None:
    described = SimpleNamespace(name="a", partitions=[SimpleNamespace(replicas=[1, 2])])
    config = {"retention.ms": SimpleNamespace(value=-1)}
    assert joined_answers({"a": described, "b": None}, {"a": None}) == {}
    assert joined_answers({"a": described}, {"a": config})["a"].config == {"retention.ms": "-1"}
