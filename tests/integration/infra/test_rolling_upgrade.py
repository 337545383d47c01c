"""Two releases on one cluster: the newer one is pinned until the older one is gone."""

from contextlib import closing

import pytest

from seamlessflow.infra.errors import NewerRelease, WrittenReleaseLacks
from seamlessflow.infra.kafka.client import BEGINNING
from seamlessflow.infra.kafka.messages import refusing
from seamlessflow.infra.kafka.producer import Producer
from seamlessflow.infra.kafka.reader import Reader, ReadingRules
from seamlessflow.infra.kafka.topics.creation import create_topics
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.schemas.records import Record
from seamlessflow.schemas.topics import FLEET, fleet_key
from tests.builders.records import fleet, sessions
from tests.builders.schemas.made_up import FIRST, SECOND, decoder_then, encoder
from tests.waiting import until


def pinned(kafka: KafkaSettings, release: str) -> Producer:
    return Producer(kafka, "pinned", encode=refusing(release, encoder(release)))


def test_an_older_process_reads_a_pinned_one_and_stops_at_one_without_a_pin(
    kafka: KafkaSettings,
) -> None:
    create_topics(kafka, [FLEET])
    read: list[Record] = []
    beat = fleet.heartbeat(release="0.1.0")
    with (
        closing(pinned(kafka, SECOND)) as careful,
        closing(Producer(kafka, "unpinned")) as careless,
        closing(
            Reader(kafka, "old", rules=ReadingRules(decode=decoder_then(SECOND), folds=True))
        ) as reader,
    ):
        reader.assign({(FLEET.name, 0): BEGINNING})
        careful.send(FLEET.name, beat, key=fleet_key(beat))
        careful.flush(60)

        def arrived() -> bool:
            read.extend(item.record for item in reader.poll(0.2))
            return bool(read)

        until(arrived, "the record of the pinned process")
        assert read == [fleet.heartbeat()]

        careless.send(FLEET.name, beat, key=fleet_key(beat))
        careless.flush(60)
        with pytest.raises(NewerRelease, match="fleet"):
            until(lambda: bool(reader.poll(0.2)), "the record of the process without a pin")


def test_a_pinned_process_refuses_what_the_older_release_cannot_hold(kafka: KafkaSettings) -> None:
    with closing(pinned(kafka, FIRST)) as producer:
        with pytest.raises(WrittenReleaseLacks, match=r"TurnUndelivered .* 0\.0\.1 .*KAFKA__WRITE"):
            producer.send("sessions", sessions.undelivered())
        with pytest.raises(WrittenReleaseLacks) as error:
            producer.send("sessions", sessions.opened(idempotency_key="k"))
    assert (error.value.record, error.value.field) == ("SessionOpened", "idempotency_key")
