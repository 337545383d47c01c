"""The reader of decisions, weights and heartbeats: `control` from now on, `fleet` as a whole.

The end of `control` is fixed before the first heartbeat is written, so no assignment to this
incarnation can be missed. Once the process reads that heartbeat back, it has read all of `fleet`
that matters.
"""

from collections.abc import Callable

from seamlessflow.infra.deadline import Stopping
from seamlessflow.infra.kafka.client import BEGINNING, Received
from seamlessflow.infra.kafka.reader import Reader
from seamlessflow.infra.kafka.reader_thread import ReaderThread
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.infra.worker.fleet_keys import of_worker
from seamlessflow.infra.worker.senders import Senders, is_training_beat
from seamlessflow.infra.worker.updates import concerns_line
from seamlessflow.producers.rollout.roles.roles import concerns
from seamlessflow.schemas.records import Record
from seamlessflow.schemas.topics import CONTROL, FLEET


class FleetReader:
    """A Kafka consumer in its own thread, for the records of one worker and its policy."""

    def __init__(
        self,
        settings: KafkaSettings,
        client_id: str,
        worker: str,
        policy: str | None,
        deliver: Callable[[list[Received]], None],
        failed: Callable[[BaseException], None],
        stopping: Stopping,
        line: bool = False,
        senders: Senders | None = None,
    ) -> None:
        """`policy`: None for a worker that several share.
        `line`: also the records by which workers load new weights one after the other.
        `senders`: takes in where training processes send weights.
        """

        def concern(record: Record) -> bool:
            return concerns(record, worker, policy) or (line and concerns_line(record))

        def deliver_ours(batch: list[Received]) -> None:
            if senders is not None:
                for item in batch:
                    senders.apply(item.record)
            ours = [item for item in batch if concern(item.record)]
            if ours:
                deliver(ours)

        is_ours = of_worker(worker)

        def wanted(key: bytes) -> bool:
            return is_ours(key) or (senders is not None and is_training_beat(key))

        self.reader = Reader(settings, client_id, wanted=wanted, stopping=stopping)
        self._thread = ReaderThread(client_id, self.reader, deliver_ours, failed)

    def start(self) -> None:
        """Fix where to read from, and begin. Blocks until Kafka answers."""
        control = (CONTROL.name, 0)
        end = self.reader.ends([control])[control]
        self.reader.assign({control: end, (FLEET.name, 0): BEGINNING})
        self._thread.start()

    def close(self) -> None:
        """End the thread."""
        self._thread.close()
