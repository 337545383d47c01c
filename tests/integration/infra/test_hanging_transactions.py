"""Transactions without an end marker on the embedded broker: noticed, judged and ended."""

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path

import pytest

from seamlessflow.infra.broker.broker import Broker
from seamlessflow.infra.broker.programs import SHORT_LIVED
from seamlessflow.infra.errors import KafkaUnavailable
from seamlessflow.infra.kafka.bounds import BoundsLookup
from seamlessflow.infra.kafka.reader import Reader
from seamlessflow.infra.kafka.topics.creation import create_topics
from seamlessflow.infra.kafka.transactions.hanging import (
    OFFSETS,
    OpenTransaction,
    TransactionLookup,
)
from seamlessflow.infra.kafka.transactions.verdicts import IdState, Verdict
from seamlessflow.infra.kafka.whole_topic import read_partitions
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.schemas.topics import ENDED_SESSIONS, REQUESTS, TRAJECTORIES
from tests.builders.brokers.hanging import (
    GROUP,
    MEMBER,
    OFFSET,
    PARTITION,
    leave_hanging,
    leave_open,
)
from tests.builders.brokers.secured import as_user, secured_broker
from tests.waiting import until

PLACE = (TRAJECTORIES.name, PARTITION)
REQUEST = (REQUESTS.name, PARTITION)
LIMIT_S = 2.0
START_S = 180.0
BOTH = 2
"""Partitions in which a manager's transaction is open: of trajectories and of offsets."""


@pytest.fixture(scope="module")
def unwatched() -> Iterator[KafkaSettings]:
    """Yield a broker that leaves transactions as they are."""
    with Broker(None, java=SHORT_LIVED, watches=False) as broker:
        yield broker.settings


@pytest.fixture
def kafka(unwatched: KafkaSettings, request: pytest.FixtureRequest) -> KafkaSettings:
    return unwatched.model_copy(update={"topic_prefix": f"{request.node.name}."})


def make_topics(kafka: KafkaSettings) -> None:
    create_topics(kafka, [REQUESTS, TRAJECTORIES, ENDED_SESSIONS])


def committed(kafka: KafkaSettings) -> tuple[int, str]:
    """Offset and metadata of the group. Raises `KafkaUnavailable` while its transaction hangs."""
    with closing(Reader(kafka, "asking", group=GROUP)) as reader:
        return reader.committed([REQUEST], LIMIT_S)[REQUEST]


def stable_end(kafka: KafkaSettings) -> int:
    with closing(BoundsLookup(kafka)) as lookup:
        return lookup.ends([PLACE], LIMIT_S)[PLACE]


def look(lookup: TransactionLookup, expected: int = 0) -> list[OpenTransaction]:
    """Look until Kafka answers with as many transactions as are expected.

    A topic that was made a moment ago may have no leader yet. A busy broker leaves out the ends of
    some partitions, and a lookup then says nothing of these.
    """
    answers: list[list[OpenTransaction]] = []

    def answered() -> bool:
        with suppress(KafkaUnavailable):
            answers.append(lookup.find())
        return answers != [] and len(answers[-1]) >= expected

    until(answered, f"an answer about {expected} transactions")
    return answers[-1]


def open_by_topic(kafka: KafkaSettings, expected: int = 0) -> Mapping[str, OpenTransaction]:
    with closing(TransactionLookup(kafka)) as lookup:
        return {item.producer.place[0]: item for item in look(lookup, expected)}


def end_all(kafka: KafkaSettings) -> None:
    with closing(TransactionLookup(kafka)) as lookup:
        for transaction in look(lookup, BOTH):
            lookup.end(transaction)


def test_one_that_was_to_be_committed_is_committed(kafka: KafkaSettings) -> None:
    make_topics(kafka)
    leave_hanging(kafka, IdState.PREPARE_COMMIT)
    with pytest.raises(KafkaUnavailable, match="committed offsets"):
        committed(kafka)
    name = f"{kafka.topic_prefix}trajectories-{MEMBER}"
    hanging = open_by_topic(kafka, BOTH)
    assert set(hanging) == {kafka.topic_prefix + TRAJECTORIES.name, OFFSETS}
    for transaction in hanging.values():
        assert (transaction.transactional_id, transaction.verdict) == (name, Verdict.COMMITTED)
    end_all(kafka)
    assert committed(kafka) == (OFFSET, "progress")
    assert stable_end(kafka) == 2  # the record and its marker
    assert open_by_topic(kafka) == {}


def test_one_that_was_to_be_aborted_leaves_nothing(kafka: KafkaSettings) -> None:
    make_topics(kafka)
    leave_hanging(kafka, IdState.PREPARE_ABORT)
    assert {item.verdict for item in open_by_topic(kafka, BOTH).values()} == {Verdict.ABORTED}
    end_all(kafka)
    assert committed(kafka)[0] < 0
    assert stable_end(kafka) == 2  # the record, which committed readers pass over, and its marker
    assert list(read_partitions(kafka, [PLACE])) == []


def test_one_under_way_is_not_ended(kafka: KafkaSettings) -> None:
    make_topics(kafka)
    leave_open(kafka)
    hanging = open_by_topic(kafka, BOTH)
    assert {item.verdict for item in hanging.values()} == {Verdict.UNDER_WAY}
    with (
        closing(TransactionLookup(kafka)) as lookup,
        pytest.raises(ValueError, match="under way"),
    ):
        lookup.end(hanging[OFFSETS])


def test_the_embedded_broker_ends_what_its_own_restart_left(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broker = Broker(tmp_path, java=SHORT_LIVED)
    with broker:
        kafka = broker.settings
        make_topics(kafka)
        leave_hanging(kafka, IdState.PREPARE_COMMIT)
        broker.force_to_end()
        until(lambda: not broker.running, "the end of the broker")
        broker.start()

        def answered() -> bool:
            try:
                return committed(kafka) == (OFFSET, "progress")
            except KafkaUnavailable:
                return False

        until(answered, "the committed offset")
    assert "a restart of the broker left it, now it is ended: transaction of" in caplog.text


def test_a_kafka_that_starts_meanwhile_is_asked_again(tmp_path: Path) -> None:
    broker = Broker(tmp_path, java=SHORT_LIVED, watches=False)
    with (
        broker,
        closing(TransactionLookup(broker.settings)) as lookup,
        ThreadPoolExecutor() as pool,
    ):
        make_topics(broker.settings)
        broker.force_to_end()
        until(lambda: not broker.running, "the end of the broker")
        with pytest.raises(KafkaUnavailable):
            lookup.find()

        answer = pool.submit(lookup.find, START_S)
        broker.start()
        assert answer.result(START_S) == []


def test_on_a_secured_cluster_one_needs_the_permission(tmp_path: Path) -> None:
    with secured_broker(tmp_path, watches=False) as kafka:
        owner, guest = as_user(kafka, "owner", "right"), as_user(kafka, "guest", "right")
        make_topics(owner)
        leave_hanging(owner, IdState.PREPARE_COMMIT)
        assert open_by_topic(guest) == {}  # it sees no topics
        end_all(owner)
        assert committed(owner) == (OFFSET, "progress")
