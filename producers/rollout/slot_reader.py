"""The reader of a worker's slot of `prompts`.

It continues after the role was given up. A manager may send turns before it knows of that. They are
handed back instead of running into their deadline.
"""

from collections.abc import Callable

from seamlessflow.infra.deadline import Stopping
from seamlessflow.infra.kafka.client import END, Received
from seamlessflow.infra.kafka.dead_letters import DeadLetters
from seamlessflow.infra.kafka.outage import WITHOUT_LIMIT
from seamlessflow.infra.kafka.producer import Producer
from seamlessflow.infra.kafka.reader import Reader
from seamlessflow.infra.kafka.reader_thread import ReaderThread
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.schemas.topics import PROMPTS


class SlotReader:
    """A Kafka consumer in its own thread, for one slot; before the first `follow` for none."""

    def __init__(
        self,
        settings: KafkaSettings,
        client_id: str,
        producer: Producer,
        deliver: Callable[[list[Received]], None],
        failed: Callable[[BaseException], None],
        stopping: Stopping,
    ) -> None:
        def deliver_and_note(batch: list[Received]) -> None:
            deliver(batch)
            self._next = batch[-1].offset + 1

        bury = DeadLetters(settings, producer, stopping).bury
        self.reader = Reader(settings, client_id, bury=bury, stopping=stopping)
        self._thread = ReaderThread(client_id, self.reader, deliver_and_note, failed)
        self._slot: int | None = None
        self._next = END
        """Offset in the slot up to which all records are delivered."""

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def follow(self, slot: int) -> int:
        """Read this slot from its end on; return that offset. Device thread only.

        Blocks, during an outage of Kafka until it is over. A slot that is read already continues
        where it is, so that no record is left out. That offset is known without asking Kafka.
        Kafka's answer would wait for the running fetch, for up to half a second.
        """
        if slot != self._slot:
            self._thread.ask(lambda reader: self._move(reader, slot), WITHOUT_LIMIT)
        return self._next

    def close(self) -> None:
        """End the thread."""
        self._thread.close()

    def _move(self, reader: Reader, slot: int) -> None:
        place = (PROMPTS.name, slot)
        end = reader.ends([place], WITHOUT_LIMIT)[place]
        reader.assign({place: end})
        self._slot, self._next = slot, end
