"""A worker's readers, for its slot and for the fleet: each a Kafka consumer in its own thread.

The slot's reader continues after the role was given up. Turns that a manager sent before it knew
this are handed back, and do not run into their deadline.

The fleet's reader reads `control` from now on and `fleet` from its beginning. It looks up where
`control` ends before the first heartbeat is written. So it misses no assignment to this
incarnation. Once the process reads that heartbeat back, it has read all of `fleet` that matters.
"""

from collections.abc import Callable
from dataclasses import dataclass

from seamlessflow.infra.clock import Stopping
from seamlessflow.infra.kafka.client import BEGINNING, END, Received
from seamlessflow.infra.kafka.dead_letters import DeadLetters
from seamlessflow.infra.kafka.outage import WITHOUT_LIMIT
from seamlessflow.infra.kafka.producer import Producer
from seamlessflow.infra.kafka.reader import Reader, ReadingRules
from seamlessflow.infra.kafka.reader_thread import ReaderThread
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.infra.worker.roles import Senders, is_training_beat, of_worker
from seamlessflow.infra.worker.updates import concerns_line
from seamlessflow.producers.rollout.roles.roles import concerns
from seamlessflow.schemas.records import Record
from seamlessflow.schemas.topics import CONTROL, FLEET, PROMPTS


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

        rules = ReadingRules(bury=DeadLetters(settings, producer, stopping).bury)
        self.reader = Reader(settings, client_id, rules=rules, stopping=stopping)
        self._thread = ReaderThread(client_id, self.reader, deliver_and_note, failed)
        self._slot: int | None = None
        self._next = END
        """Offset in the slot up to which all records are delivered."""

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def follow(self, slot: int) -> int:
        """Read this slot from its end on; return that offset. Device thread only.

        Blocks; during a Kafka outage until it is over. If the slot is read already, reading goes on
        where it is, so that no record is left out. That offset is known without asking Kafka,
        whose answer would wait for the running fetch, for up to half a second.
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
        self._slot = slot
        self._next = end


@dataclass(frozen=True, slots=True)
class Interest:
    """The fleet's records that concern a worker."""

    worker: str
    policy: str | None
    """None for a worker that several policies share."""
    line: bool = False
    """True: also the records by which workers load new weights one after the other."""
    senders: Senders | None = None
    """Takes in where training processes send weights."""

    def concerns(self, record: Record) -> bool:
        """Return True for a record that the worker folds."""
        if concerns(record, self.worker, self.policy):
            return True
        return self.line and concerns_line(record)

    def keys(self) -> Callable[[bytes], bool]:
        """Return a test for record keys. Records that fail it are not even decoded."""
        is_ours = of_worker(self.worker)
        if self.senders is None:
            return is_ours
        return lambda key: is_ours(key) or is_training_beat(key)


class FleetReader:
    """A Kafka consumer in its own thread, for records on one worker and its policy."""

    def __init__(
        self,
        settings: KafkaSettings,
        client_id: str,
        interest: Interest,
        deliver: Callable[[list[Received]], None],
        failed: Callable[[BaseException], None],
        stopping: Stopping,
    ) -> None:
        def deliver_ours(batch: list[Received]) -> None:
            if interest.senders is not None:
                for item in batch:
                    interest.senders.apply(item.record)
            ours = [item for item in batch if interest.concerns(item.record)]
            if ours:
                deliver(ours)

        rules = ReadingRules(wanted=interest.keys())
        self.reader = Reader(settings, client_id, rules=rules, stopping=stopping)
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
