"""What the manager reads: `fleet` with `control`, `requests`, `sessions`; each in its own thread.

`requests` is read as a member of a consumer group; the same partitions of `sessions` are assigned
by hand.
"""

from collections.abc import Callable, Mapping
from queue import SimpleQueue
from typing import Any

from consumers.trajectories.bus.echoes import Echoes
from consumers.trajectories.bus.inbox import Inbox
from consumers.trajectories.sessions.partition import PartitionProgress
from infra.kafka.client import BEGINNING
from infra.kafka.producer import Producer
from infra.kafka.reader import Reader
from infra.kafka.reader_thread import ReaderThread
from infra.settings import KafkaSettings
from schemas.topics import CONTROL, FLEET, REQUESTS, SESSIONS

_CATCH_UP_TIMEOUT_S = 60


class Readers:
    """All that they read goes to the inbox."""

    def __init__(
        self,
        kafka: KafkaSettings,
        manager: str,
        group: str,
        inbox: Inbox,
        echoes: Echoes,
    ) -> None:
        self._letters = Producer(kafka, f"{manager}-dead-letters")

        def thread(name: str, **options: Any) -> ReaderThread:
            reader = Reader(kafka, f"{manager}-{name}", dead_letters=self._letters, **options)
            return ReaderThread(f"{name} reader", reader, inbox.put, inbox.put)

        self._fleet = thread("fleet")
        self.requests = thread("requests", group=group, **{"group.remote.assignor": "uniform"})
        self._sessions = thread("sessions", decode=echoes.decode)
        self._echoes = echoes
        self._ends_wanted: SimpleQueue[tuple[int, Callable[[int], None]]] = SimpleQueue()

    def read_fleet_to_end(self) -> None:
        """Reads `fleet` to its end: without policies and workers nothing can be decided."""
        self._fleet.start()
        topics = [(FLEET.name, 0), (CONTROL.name, 0)]
        ends = self._fleet.ask(lambda reader: reader.ends(topics))
        starts = {(FLEET.name, 0): BEGINNING, (CONTROL.name, 0): ends[CONTROL.name, 0]}
        self._fleet.call(lambda reader: reader.assign(starts))
        self._fleet.await_position((FLEET.name, 0), ends[FLEET.name, 0], _CATCH_UP_TIMEOUT_S)

    def join_group(
        self,
        assigned: Callable[[dict[int, tuple[int, PartitionProgress]]], None],
        revoked: Callable[[list[int]], None],
    ) -> None:
        """Calls back in the thread of `requests`: partitions with what was committed for each, and
        partitions that are given up when `revoked` returns."""

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
        """Reads these partitions of `sessions` too; `added` comes before their first record."""
        starts = {(SESSIONS.name, number): offset for number, offset in offsets.items()}

        def add(reader: Reader) -> None:
            reader.add(starts)
            added()

        self._sessions.call(add)

    def remove_sessions(self, numbers: list[int]) -> None:
        """Reads these partitions of `sessions` no longer; what is under way still comes."""
        self._echoes.forget()
        gone = [(SESSIONS.name, number) for number in numbers]
        self._sessions.call(lambda reader: reader.remove(gone))

    def ask_for_end(self, number: int, tell: Callable[[int], None]) -> None:
        """Tells, in the reader's thread, where this partition of `requests` ends."""
        self._ends_wanted.put((number, tell))
        self.requests.call(self._look_for_ends)

    def close(self) -> None:
        """Leaves the group."""
        for reader in (self.requests, self._sessions, self._fleet):
            reader.close()
        self._letters.close()

    def _look_for_ends(self, reader: Reader) -> None:
        """At once for all that are wanted meanwhile."""
        wanted: dict[tuple[str, int], Callable[[int], None]] = {}
        while not self._ends_wanted.empty():
            number, tell = self._ends_wanted.get()
            wanted[REQUESTS.name, number] = tell
        if wanted:
            for place, offset in reader.ends(wanted).items():
                wanted[place](offset)
