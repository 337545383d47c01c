"""Requests in Kafka's binary protocol that librdkafka lacks, and their answers. Pure.

`DescribeProducers` names the producers with an open transaction in a partition. `WriteTxnMarkers`
ends such a transaction there. Layouts: the message definitions in Apache Kafka 4.3 (KIP-664,
KIP-98). Called by `hanging.py`; `connection.py` sends the bytes.
"""

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

TopicPartition = tuple[str, int]
"""A topic's full name, with prefix, and a partition number."""
DESCRIBE_PRODUCERS = (61, 0)
WRITE_MARKERS = (27, 1)
"""Key and version of each request."""
_NO_TAGS = b"\0"


@dataclass(frozen=True, slots=True)
class OpenProducer:
    """A producer with an open transaction in a partition."""

    place: TopicPartition
    producer_id: int
    epoch: int
    coordinator_epoch: int
    start: int
    """Offset of its first record."""


class BrokerAnswer:
    """A message's fields, read one after the other. Raises `ValueError` behind its end."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._at = 0

    def number(self, form: str) -> int:
        """Return the next number, which has this `struct` format."""
        size = struct.calcsize(f">{form}")
        (value,) = struct.unpack(f">{form}", self.raw(size))
        return int(value)

    def raw(self, size: int) -> bytes:
        """Return the next `size` bytes."""
        begin = self._at
        self._at = self._at + size
        if size < 0 or self._at > len(self._content):
            raise ValueError(f"a message of {len(self._content)} bytes ends too early")
        return self._content[begin : self._at]

    def varint(self) -> int:
        """Return an unsigned variable-length number."""
        value = shift = 0
        while (byte := self.number("B")) & 0x80:
            value = value | (byte & 0x7F) << shift
            shift = shift + 7
        return value | byte << shift

    def items(self) -> range:
        """Return a compact array's item numbers; none for a missing array."""
        return range(self.varint() - 1)

    def text(self) -> str:
        """Return a compact string; "" for a missing one."""
        return self.raw(max(0, self.varint() - 1)).decode()

    def tags(self) -> None:
        """Skip tagged fields."""
        for _ in range(self.varint()):
            self.varint()
            self.raw(self.varint())


def describe_producers(places: Iterable[TopicPartition]) -> bytes:
    """Return a request's body that asks for the partitions' producers."""
    return _topics(places) + _NO_TAGS


def open_producers(answer: BrokerAnswer) -> tuple[list[OpenProducer], dict[TopicPartition, int]]:
    """Return the producers with an open transaction, and the other partitions' error codes."""
    producers: list[OpenProducer] = []
    errors: dict[TopicPartition, int] = {}
    answer.number("i")  # time for which the broker held the request back
    for _ in answer.items():
        topic = answer.text()
        for _ in answer.items():
            place = topic, answer.number("i")
            if code := answer.number("h"):
                errors[place] = code
            answer.text()
            producers += [
                producer
                for _ in answer.items()
                if (producer := _producer(answer, place)).start >= 0
            ]
            answer.tags()
        answer.tags()
    return producers, errors


def write_marker(producer: OpenProducer, commit: bool) -> bytes:
    """Return a request's body that ends a producer's transaction in its partition."""
    marker = struct.pack(">qh?", producer.producer_id, producer.epoch, commit)
    epoch = struct.pack(">i", max(0, producer.coordinator_epoch))
    return _count(1) + marker + _topics([producer.place]) + epoch + _NO_TAGS + _NO_TAGS


def marker_errors(answer: BrokerAnswer) -> Sequence[int]:
    """Return the error codes for partitions whose marker was not written."""
    codes = []
    for _ in answer.items():
        answer.number("q")
        for _ in answer.items():
            answer.text()
            for _ in answer.items():
                answer.number("i")
                codes.append(answer.number("h"))
                answer.tags()
            answer.tags()
        answer.tags()
    return [code for code in codes if code]


def _producer(answer: BrokerAnswer, place: TopicPartition) -> OpenProducer:
    producer_id = answer.number("q")
    epoch = answer.number("i")
    answer.number("i")  # its last sequence number
    answer.number("q")  # the time of its last record
    coordinator_epoch = answer.number("i")
    start = answer.number("q")
    answer.tags()
    return OpenProducer(place, producer_id, epoch, coordinator_epoch, start)


def _topics(places: Iterable[TopicPartition]) -> bytes:
    """Return the partitions by topic, encoded."""
    numbers: dict[str, list[int]] = {}
    for topic, number in places:
        numbers.setdefault(topic, []).append(number)
    body = _count(len(numbers))
    for topic, of_topic in numbers.items():
        body += _count(len(topic.encode())) + topic.encode()
        body += _count(len(of_topic)) + struct.pack(f">{len(of_topic)}i", *of_topic) + _NO_TAGS
    return body


def _count(number: int) -> bytes:
    """Return the encoded length of a compact string or array."""
    left = number + 1
    encoded = b""
    while left > 0x7F:
        encoded = encoded + bytes([left & 0x7F | 0x80])
        left = left >> 7
    return encoded + bytes([left])
