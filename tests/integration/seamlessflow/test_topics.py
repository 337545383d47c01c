"""Topics on a cluster: copies by its brokers, the check of what matters, those of an upgrade."""

from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from seamlessflow.__main__ import app
from seamlessflow.infra.kafka.topics.creation import TopicOptions, create_topics
from seamlessflow.infra.kafka.topics.existing import found_topics, partition_counts
from seamlessflow.infra.kafka.topics.partitions import TooFewSlots
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.schemas.topics import ENDED_SESSIONS, PROMPTS, REQUESTS, SESSIONS
from tests.builders.brokers.several import three_brokers
from tests.waiting import until


@pytest.mark.slow
def test_three_brokers_keep_three_copies_and_the_check_names_what_was_made_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with three_brokers(tmp_path) as kafka:
        monkeypatch.setenv("SEAMLESSFLOW_KAFKA__BOOTSTRAP_SERVERS", kafka.bootstrap_servers)
        command = CliRunner().invoke
        odd = ["--partitions", "prompts=5", "--retention", "requests=7d"]
        assert command(app, ["topics", "create", *odd]).exit_code == 0
        names = ["sessions", "prompts", "requests"]
        until(lambda: len(found_topics(kafka, names)) == len(names), "the topics")
        topics = found_topics(kafka, names)
        assert {
            (topic.replication, topic.config["min.insync.replicas"]) for topic in topics.values()
        } == {(3, "2")}
        assert (topics["prompts"].partitions, topics["sessions"].partitions) == (5, 32)
        assert topics["requests"].config["retention.ms"] == str(7 * 24 * 3_600_000)
        checked = command(app, ["topics", "check"])
        assert checked.output == "all topics are as they should be\n"

        monkeypatch.setenv("SEAMLESSFLOW_KAFKA__TOPIC_PREFIX", "other.")
        asked = ["--replication", "1", "--retention", "sessions=1h"]
        assert command(app, ["topics", "create", *asked]).exit_code == 0
        answers: list[Result] = []

        def complete() -> bool:  # the broker that is asked may not know of the topics yet
            answers.append(command(app, ["topics", "check"]))
            return "missing" not in answers[-1].output

        until(complete, "the topics")
        checked = answers[-1]
        assert checked.exit_code == 1
        assert "other.sessions: replication 1, not 3" in checked.output
        assert "other.sessions: retention.ms 3600000, not -1" in checked.output
        assert "--entity-name other.sessions --add-config retention.ms=-1" in checked.output


def test_a_topic_that_an_upgrade_adds_has_as_many_partitions_as_those_that_go_with_it(
    kafka: KafkaSettings,
) -> None:
    create_topics(kafka, [replace(REQUESTS, partitions=3), replace(SESSIONS, partitions=3)])
    name = kafka.topic_prefix + ENDED_SESSIONS.name
    assert name in create_topics(kafka, [REQUESTS, SESSIONS, ENDED_SESSIONS])
    until(lambda: partition_counts(kafka).get(name) == 3, "the topic")


def test_prompts_have_a_slot_for_each_of_many_workers_and_refuse_more_before_the_start(
    kafka: KafkaSettings,
) -> None:
    create_topics(kafka, [PROMPTS], TopicOptions(workers=72))
    name = kafka.topic_prefix + PROMPTS.name
    until(lambda: partition_counts(kafka).get(name) == 90, "the topic")
    with pytest.raises(TooFewSlots, match="has 90 partitions, and 125 workers"):
        create_topics(kafka, [PROMPTS], TopicOptions(workers=125))
