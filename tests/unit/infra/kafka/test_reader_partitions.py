"""Partitions that a reader takes up and gives up, in any order; no broker is needed."""

from collections.abc import Iterator

import pytest

from seamlessflow.infra.kafka.reader import Reader
from seamlessflow.infra.settings import KafkaSettings

FIRST, SECOND = ("sessions", 0), ("sessions", 1)


@pytest.fixture
def reader() -> Iterator[Reader]:
    made = Reader(KafkaSettings(bootstrap_servers="127.0.0.1:1"), "reader")
    yield made
    made.close()


def assignment(reader: Reader) -> set[int]:
    return {place.partition for place in reader._consumer.assignment()}


def test_giving_up_what_was_never_taken_up_changes_nothing(reader: Reader) -> None:
    reader.remove([FIRST])
    reader.add({FIRST: 0})
    reader.remove([SECOND])
    assert assignment(reader) == {0}


def test_of_several_only_those_that_are_read_are_given_up(reader: Reader) -> None:
    reader.add({FIRST: 0})
    reader.remove([FIRST, SECOND])
    assert assignment(reader) == set()


def test_giving_up_twice_is_giving_up_once(reader: Reader) -> None:
    reader.add({FIRST: 0, SECOND: 0})
    reader.remove([FIRST])
    reader.remove([FIRST])
    assert assignment(reader) == {1}


def test_taking_up_again_what_is_read_begins_at_the_new_offset(reader: Reader) -> None:
    reader.add({FIRST: 0})
    reader.add({FIRST: 5, SECOND: 0})
    assert assignment(reader) == {0, 1}
    assert {(place.partition, place.offset) for place in reader._consumer.assignment()} >= {(0, 5)}
