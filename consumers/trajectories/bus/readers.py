"""The manager's three reader threads: `fleet` with `control`, `requests`, and `sessions`.

`requests` is read as a member of the Kafka consumer group; `Ownership` then adds the same
partitions of `sessions`.
"""

from collections.abc import Callable, Mapping
from queue import SimpleQueue
from typing import Any

from consumers.trajectories.bus.echoes import Echoes
from consumers.trajectories.bus.inbox import ManagerInbox
from consumers.trajectories.sessions.partition import PartitionProgress
from infra.kafka.client import BEGINNING
from infra.kafka.producer import Producer
from infra.kafka.reader import Reader
from infra.kafka.reader_thread import Deliver, ReaderThread
from infra.settings import KafkaSettings
from schemas.topics import CONTROL, FLEET, REQUESTS, SESSIONS

_CATCH_UP_TIMEOUT_S = 60


class Readers:
    """Puts all records and reader errors into the inbox.

    Callbacks run in the reader threads, where they should only put work into the inbox.
    """

    def __init__(
        self,
        kafka: KafkaSettings,
        manager: str,
        group: str,
        inbox: ManagerInbox,
        echoes: Echoes,
    ) -> None:
        self._letters = Producer(kafka, f"{manager}-dead-letters")

        def thread(name: str, deliver: Deliver, **options: Any) -> ReaderThread:
            reader = Reader(kafka, f"{manager}-{name}", dead_letters=self._letters, **options)
            return ReaderThread(f"{name} reader", reader, deliver, inbox.fail)

        # The main thread waits until the fleet is read before it empties the inbox: no limit.
        self._fleet = thread("fleet", inbox.post)
        self.requests = thread(
            "requests", inbox.put, group=group, **{"group.remote.assignor": "uniform"}
        )
        self._sessions = thread("sessions", inbox.put, decode=echoes.decode)
        self._echoes = echoes
        self._ends_wanted: SimpleQueue[tuple[int, Callable[[int], None]]] = SimpleQueue()

    def read_fleet_to_end(self) -> None:
        """Read `fleet` to its end, before anything can be decided: it holds policies and workers.

        Blocks for 60 s at most. Raises `TimeoutError`.
        """
        self._fleet.start()
        topics = [(FLEET.name, 0), (CONTROL.name, 0)]
        ends = self._fleet.ask(lambda reader: reader.ends(topics))
        # `control` from now on: who serves at this moment is known from heartbeats on `fleet`.
        starts = {(FLEET.name, 0): BEGINNING, (CONTROL.name, 0): ends[CONTROL.name, 0]}
        self._fleet.call(lambda reader: reader.assign(starts))
        self._fleet.await_position((FLEET.name, 0), ends[FLEET.name, 0], _CATCH_UP_TIMEOUT_S)

    def join_group(
        self,
        assigned: Callable[[dict[int, tuple[int, PartitionProgress]]], None],
        revoked: Callable[[list[int]], None],
    ) -> None:
        """Join the consumer group and start reading. Callbacks run in the thread of `requests`.

        `assigned` gets next offset and progress by partition. `revoked` gets partitions that Kafka
        gives away once it returns.
        """

        def with_progress(partitions: list[tuple[str, int]]) -> None:
            found = self.requests.reader.committed(partitions)
            assigned(
                {
                    number: (max(offset, 0), PartitionProgress.decode(metadata))
                    for (_, number), (offset, metadata) in found.items()
                }
            )

        def numbers(partitions: list[tuple[str, int]]) -> None:
            revoked([number for _, number in partitions])

        self.requests.call(lambda reader: reader.subscribe([REQUESTS.name], with_progress, numbers))
        self.requests.start()
        self._sessions.start()

    def add_sessions(self, offsets: Mapping[int, int], added: Callable[[], None]) -> None:
        """Also read these partitions of `sessions`. `added` is called before their first record."""
        starts = {(SESSIONS.name, number): offset for number, offset in offsets.items()}

        def add(reader: Reader) -> None:
            reader.add(starts)
            added()

        self._sessions.call(add)

    def remove_sessions(self, numbers: list[int]) -> None:
        """Stop reading these partitions of `sessions`. Records already read may still arrive."""
        self._echoes.forget()
        gone = [(SESSIONS.name, number) for number in numbers]
        self._sessions.call(lambda reader: reader.remove(gone))

    def ask_for_end(self, number: int, answer: Callable[[int], None]) -> None:
        """Call `answer` with the end offset of this partition of `requests`."""
        self._ends_wanted.put((number, answer))
        self.requests.call(self._look_for_ends)

    def close(self) -> None:
        """Leave the consumer group and end the threads."""
        for reader in (self.requests, self._sessions, self._fleet):
            reader.close()
        self._letters.close()

    def _look_for_ends(self, reader: Reader) -> None:
        """Answer all waiting questions with one request to Kafka."""
        wanted: dict[tuple[str, int], Callable[[int], None]] = {}
        while not self._ends_wanted.empty():
            number, answer = self._ends_wanted.get()
            wanted[REQUESTS.name, number] = answer
        if wanted:
            for place, offset in reader.ends(wanted).items():
                wanted[place](offset)
