"""Owners and lags of groups, and records against offsets, on a real broker."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from io import StringIO

import pytest
from rich.console import Console, RenderableType
from typer.testing import CliRunner

from seamlessflow.__main__ import app
from seamlessflow.infra.clock import never, now_ms
from seamlessflow.infra.kafka.client import LogPartition
from seamlessflow.infra.kafka.producer import Producer, TransactionalProducer
from seamlessflow.infra.kafka.reader import Reader
from seamlessflow.infra.kafka.start.group import membership
from seamlessflow.infra.kafka.topics.creation import create_topics
from seamlessflow.infra.kafka.topics.existing import partition_counts
from seamlessflow.infra.kafka.topics.lag import GroupState
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.inspection.topics.inspector import TopicInspector, TopicStateSettings
from seamlessflow.inspection.topics.state import READINGS
from seamlessflow.inspection.topics.view import TopicWatch
from seamlessflow.schemas.topics import REQUESTS, SESSIONS, TRAJECTORIES
from tests.builders.records import commands
from tests.waiting import until

LIMIT_S = 120
GROUP = TopicStateSettings().manager.group
REWARDS = TopicStateSettings().rewards.group
MEMBERS = ("manager-one", "manager-two")


@pytest.fixture
def cluster(kafka: KafkaSettings, monkeypatch: pytest.MonkeyPatch) -> KafkaSettings:
    """Return the broker, which the environment names, with the topic of the managers."""
    monkeypatch.setenv("SEAMLESSFLOW_KAFKA__BOOTSTRAP_SERVERS", kafka.bootstrap_servers)
    monkeypatch.setenv("SEAMLESSFLOW_KAFKA__TOPIC_PREFIX", kafka.topic_prefix)
    monkeypatch.setenv("COLUMNS", "200")
    names = set(create_topics(kafka, [REQUESTS, TRAJECTORIES]))
    until(lambda: names <= set(partition_counts(kafka)), "the topics", LIMIT_S)
    return kafka


@pytest.fixture
def members(cluster: KafkaSettings) -> Iterator[None]:
    """Keep two members of the managers' group that share the partitions."""
    with ExitStack() as stack:
        readers = []
        owned = {name: set[LogPartition]() for name in MEMBERS}
        for name in MEMBERS:
            options = membership(cluster, GROUP, REQUESTS, None, never)
            reader = Reader(cluster, name, group=GROUP, **options)
            stack.callback(reader.close)
            partitions = owned[name]
            reader.subscribe([REQUESTS.name], partitions.update, partitions.difference_update)
            readers.append(reader)

        def shared() -> bool:
            for reader in readers:
                reader.poll(0.05)
            return {len(share) for share in owned.values()} == {REQUESTS.partitions // 2}

        until(shared, "both members", LIMIT_S)
        yield


def lines(view: RenderableType) -> list[str]:
    console = Console(width=200, file=StringIO())
    with console.capture() as captured:
        console.print(view)
    return captured.get().splitlines()


def ask(producer: Producer, partition: int) -> None:
    producer.send(REQUESTS.name, commands.close_session(), key="s", partition=partition)
    producer.flush(LIMIT_S)


@pytest.mark.usefixtures("members")
def test_each_member_owns_its_partitions_and_a_growing_lag_stands_out(
    cluster: KafkaSettings,
) -> None:
    producer = Producer(cluster, "test")
    with TopicInspector(TopicStateSettings()) as inspector:
        readings = TopicWatch(inspector.look)
        for _ in range(READINGS):
            ask(producer, 9)
            shown = lines(readings.view())
    producer.close()
    assert any(f"{GROUP} reads requests: 2 members" in line for line in shown)
    for name in MEMBERS:
        assert any(name in line for line in shown)
    assert not any("no owner" in line for line in shown)
    [growing] = [line.split() for line in shown if "growing: +" in line]
    assert (growing[0], growing[-3:]) == ("9", [str(READINGS), "growing:", f"+{READINGS - 1}"])


def test_partitions_of_a_group_without_members_have_no_owner(cluster: KafkaSettings) -> None:
    output = CliRunner().invoke(app, ["topics", "list"]).output
    assert f"{GROUP} reads requests: 0 members" in output
    assert "0-31         no owner" in output


def test_reward_workers_are_listed_where_a_run_has_any(cluster: KafkaSettings) -> None:
    create_topics(cluster, [SESSIONS])
    until(lambda: SESSIONS.name in shown_topics(), "the topic", LIMIT_S)
    assert shown_topics()[SESSIONS.name] is None, "no run here has judges"
    options = membership(cluster, REWARDS, SESSIONS, None, never)
    reader = Reader(cluster, "reward-worker", group=REWARDS, **options)
    reader.subscribe([SESSIONS.name])

    def listed() -> bool:
        reader.poll(0.05)
        group = shown_topics()[SESSIONS.name]
        return group is not None and (group.name, group.members) == (REWARDS, 1)

    try:
        until(listed, "the group", LIMIT_S)
    finally:
        reader.close()


def shown_topics() -> Mapping[str, GroupState | None]:
    """Return the group of each topic."""
    with TopicInspector(TopicStateSettings()) as inspector:
        return {state.name: state.group for state in inspector.look()}


def test_records_that_wait_without_a_reader_say_since_when(cluster: KafkaSettings) -> None:
    producer = Producer(cluster, "test")
    before_ms = now_ms()
    for partition in (9, 1, 9):
        ask(producer, partition)
    producer.close()
    with TopicInspector(TopicStateSettings()) as inspector:
        (group,) = [state.group for state in inspector.look() if state.name == REQUESTS.name]
    assert group is not None
    assert group.waits_since_ms is not None
    assert before_ms <= group.waits_since_ms <= now_ms()


def counted() -> tuple[str, str]:
    """Return offsets and counted records of `requests` as the command shows them."""
    output = CliRunner().invoke(app, ["topics", "list", "--count"]).output
    rows = [line for line in output.splitlines() if line.startswith("│ requests")]
    cells = [cell.strip() for row in rows for cell in row.strip("│").split("│")]
    return (cells[2], cells[-1]) if cells else ("", output[-300:])


def test_counted_records_are_those_that_transactions_committed(cluster: KafkaSettings) -> None:
    producer = TransactionalProducer(cluster, "test")
    for partition in (1, 1, 2):
        producer.commit(partial(ask, producer, partition), {}, None)
    producer.close()
    # A count ends after some seconds, whatever it has read: on a busy machine another is whole.
    until(lambda: counted() == ("6", "3"), "a whole count", LIMIT_S)
    assert CliRunner().invoke(app, ["topics", "list", "--count", "--watch"]).exit_code == 2
