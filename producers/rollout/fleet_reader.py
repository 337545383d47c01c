"""The reader of decisions, weights and heartbeats: `control` from now on, `fleet` as a whole.

The end of `control` is fixed before the first heartbeat is written, so no assignment to this
incarnation can be missed. Once the process reads that heartbeat back, it has read all of `fleet`
that matters.
"""

from collections.abc import Callable

from infra.kafka.client import BEGINNING, Received
from infra.kafka.producer import Producer
from infra.kafka.reader import Reader
from infra.kafka.reader_thread import ReaderThread
from infra.settings import KafkaSettings
from producers.rollout.roles.roles import concerns
from schemas.topics import CONTROL, FLEET


class FleetReader:
    """A Kafka consumer in its own thread, for the records of one worker and its policy."""

    def __init__(
        self,
        settings: KafkaSettings,
        client_id: str,
        worker: str,
        policy: str,
        dead_letters: Producer,
        deliver: Callable[[list[Received]], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        def deliver_ours(batch: list[Received]) -> None:
            ours = [item for item in batch if concerns(item.record, worker, policy)]
            if ours:
                deliver(ours)

        self._reader = Reader(settings, client_id, dead_letters=dead_letters)
        self._thread = ReaderThread(client_id, self._reader, deliver_ours, failed)

    def start(self) -> None:
        """Fix where to read from, and begin. Blocks for one answer of the broker."""
        control = (CONTROL.name, 0)
        end = self._reader.ends([control])[control]
        self._reader.assign({control: end, (FLEET.name, 0): BEGINNING})
        self._thread.start()

    def close(self) -> None:
        """End the thread."""
        self._thread.close()
