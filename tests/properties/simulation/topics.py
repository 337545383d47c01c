"""Kafka's topics as lists, and producers whose records reach them late, in part or not at all.

What an idempotent producer sends to one partition arrives there once and in the order it was sent,
or, when its process dies, only a beginning of it. Nothing else about the order is promised.
"""

from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field

from seamlessflow.infra.errors import DeliveryFailed
from seamlessflow.infra.kafka.client import Received
from seamlessflow.infra.kafka.producer import OnDelivery
from seamlessflow.schemas.codec import decode, encode
from seamlessflow.schemas.records import Record
from seamlessflow.schemas.topics import Headers
from tests.properties.choices import Choices

Place = tuple[str, int]


@dataclass
class Topics:
    """All records that arrived, by topic and partition."""

    records: defaultdict[Place, list[Received]] = field(default_factory=lambda: defaultdict(list))
    listeners: list[Callable[[Received], None]] = field(default_factory=list)
    """Called with every record at the moment it arrives."""

    def append(self, topic: str, partition: int, record: Record) -> int:
        """Append the record, encoded and decoded again; return its offset."""
        log = self.records[topic, partition]
        read = decode(encode(record))
        received = Received(topic, partition, len(log), 0, None, (), read)
        log.append(received)
        for listener in self.listeners:
            listener(received)
        return received.offset

    def read(self, place: Place, offset: int, most: int) -> list[Received]:
        """Return records from an offset on."""
        return self.records[place][offset : offset + most]


@dataclass(frozen=True)
class _Sent:
    number: int
    record: Record
    on_delivery: OnDelivery | None


class Sending:
    """A double of a process's `Producer`."""

    encode = staticmethod(encode)

    def __init__(
        self, topics: Topics, sending: Callable[[int, Record], None] = lambda *sent: None
    ) -> None:
        """`sending` is called with the partition and the record before it is queued."""
        self.sent = 0
        self._sending = sending
        self._topics = topics
        self._queues: defaultdict[Place, deque[_Sent]] = defaultdict(deque)

    def send(
        self,
        topic: str,
        record: Record,
        *,
        key: str | None = None,
        partition: int | None = None,
        headers: Headers | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> None:
        """Queue the record."""
        self._sending(partition or 0, record)
        self.sent += 1
        self._queues[topic, partition or 0].append(_Sent(self.sent, record, on_delivery))

    def send_bytes(
        self,
        topic: str,
        value: bytes,
        key: str | bytes | None = None,
        partition: int | None = None,
        headers: Headers | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> None:
        """Queue a record that is encoded already."""
        self.send(topic, decode(value), partition=partition, on_delivery=on_delivery)

    def settled(self, number: int) -> bool:
        """Return True if the first `number` records sent have all arrived."""
        return all(queue[0].number > number for queue in self._queues.values() if queue)

    def deliver(self, choices: Choices, most: int = 1) -> bool:
        """Deliver up to `most` records of one queue; return True if there was one."""
        places = [place for place, queue in self._queues.items() if queue]
        if not places:
            return False
        place = choices.pick(places)
        for _ in range(min(most, len(self._queues[place]))):
            self._arrive(place)
        return True

    def flush(self) -> bool:
        """Deliver all records, also those sent upon deliveries; return True if there were any."""
        any_arrived = False
        while places := [place for place, queue in self._queues.items() if queue]:
            any_arrived = True
            for place in places:
                self._arrive(place)
        return any_arrived

    def lose(self, choices: Choices) -> None:
        """Lose the next record of a queue; its sender gets the error."""
        places = [place for place, queue in self._queues.items() if queue]
        if places:
            place = choices.pick(places)
            sent = self._queues[place].popleft()
            if sent.on_delivery is not None:
                sent.on_delivery(DeliveryFailed(*place, None, "lost"), -1)

    def die(self, choices: Choices) -> None:
        """Kill the process: a prefix of each queue still arrives, unknown to the sender."""
        for place, queue in self._queues.items():
            for _ in range(choices.below(len(queue) + 1)):
                self._topics.append(*place, queue.popleft().record)
        self._queues.clear()

    def _arrive(self, place: Place) -> None:
        sent = self._queues[place].popleft()
        offset = self._topics.append(*place, sent.record)
        if sent.on_delivery is not None:
            sent.on_delivery(None, offset)
