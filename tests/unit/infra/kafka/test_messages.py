"""Messages whose values, keys or headers are garbage are delivered as unreadable records."""

from confluent_kafka import Message
from hypothesis import given
from hypothesis import strategies as st

from seamlessflow.infra.errors import NewerRelease
from seamlessflow.infra.kafka.client import Received
from seamlessflow.infra.kafka.messages import decoded
from seamlessflow.infra.kafka.unreadable import Skipped, Unreadable
from seamlessflow.schemas.codec import decode, encode
from tests.builders.records import control

LOST = control.lost()
Header = tuple[str, bytes | None]


def received(
    value: bytes | None, key: bytes | None = None, headers: list[Header] | None = None
) -> Received | None:
    message = Message(
        topic="control",
        partition=0,
        offset=7,
        value=value,
        key=key,
        headers=headers,  # type: ignore[arg-type]
        timestamp=(1, 5),
    )
    return decoded(message, ("control", 0), decode)


VALUES = st.one_of(st.binary(), st.binary().map(lambda tail: encode(LOST)[:12] + tail))
HEADERS = st.lists(st.tuples(st.text(), st.none() | st.binary()))


@given(VALUES, st.none() | st.binary(), HEADERS)
def test_any_bytes_make_a_record_with_its_place(
    value: bytes, key: bytes | None, headers: list[Header]
) -> None:
    message = received(value, key, headers)
    assert message is not None
    assert message[:4] == ("control", 0, 7, 5)


def test_a_record_is_delivered_with_key_and_headers() -> None:
    headers: list[Header] = [("traceparent", b"\xff"), ("tracestate", None)]
    message = received(encode(LOST), b"key", headers)
    assert message is not None
    assert (message.record, message.key, message.headers) == (LOST, "key", headers)
    assert message.size == len(encode(LOST))


def test_a_record_whose_key_is_not_utf8_is_garbage() -> None:
    message = received(encode(LOST), b"\xff")
    assert message is not None
    assert message.key is None
    assert isinstance(message.record, Unreadable)
    assert message.record.missed is None
    assert "utf-8" in message.record.error


def test_a_record_of_a_newer_release_names_its_place_and_fingerprint() -> None:
    message = received(b"\xc3\x01" + bytes(8) + b"body", b"\xff")
    assert message is not None
    assert isinstance(message.record, Unreadable)
    assert isinstance(message.record.missed, NewerRelease)
    for fact in ("control[0]@7", "0000000000000000", "upgrade"):
        assert fact in str(message.record.missed)


def test_a_tombstone_is_no_record() -> None:
    assert received(None) is None


def test_an_observer_counts_garbage_and_names_the_first_newer_record() -> None:
    skipped = Skipped()
    assert skipped.notices == []
    for value in (b"x", b"y", b"\xc3\x01" + bytes(8), b"\xc3\x01" + bytes(9)):
        item = received(value)
        assert item is not None and isinstance(item.record, Unreadable)
        skipped.apply(item.topic, item.record)
    garbage, newer = skipped.notices
    assert garbage == "skipped 2 unreadable records of control"
    assert "a newer release wrote this" in newer
