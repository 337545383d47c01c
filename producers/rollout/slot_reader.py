"""The reader of a worker's slot of `prompts`.

It goes on reading after the role was given up: what a manager sent before it knew is handed back
instead of running into a deadline.
"""

from collections.abc import Callable

from infra.kafka.client import Received
from infra.kafka.producer import Producer
from infra.kafka.reader import Reader
from infra.kafka.reader_thread import ReaderThread
from infra.settings import KafkaSettings
from schemas.topics import PROMPTS


class SlotReader:
    """Delivers what arrives in the slot it follows; at first none."""

    def __init__(
        self,
        settings: KafkaSettings,
        client_id: str,
        dead_letters: Producer,
        deliver: Callable[[list[Received]], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        reader = Reader(settings, client_id, dead_letters=dead_letters)
        self._thread = ReaderThread(client_id, reader, deliver, failed)
        self._slot: int | None = None

    def start(self) -> None:
        """Begins to read."""
        self._thread.start()

    def follow(self, slot: int) -> int:
        """Reads this slot from its end on; returns that offset. Blocks. Device thread only.

        A slot that is read already goes on where it is, so that nothing in it is left out.
        """
        return self._thread.ask(lambda reader: self._move(reader, slot))

    def close(self) -> None:
        """Ends the thread."""
        self._thread.close()

    def _move(self, reader: Reader, slot: int) -> int:
        place = (PROMPTS.name, slot)
        end = reader.ends([place])[place]
        if slot != self._slot:
            reader.assign({place: end})
            self._slot = slot
        return end
