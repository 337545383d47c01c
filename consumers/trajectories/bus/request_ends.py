"""The ends of `requests` partitions, measured once a second and when a deadline waits for them.

A separate thread asks Kafka. In an outage, a question waits for seconds. Neither the main thread
nor a record reader may stand still for it.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from queue import SimpleQueue

from seamlessflow.consumers.trajectories.bus.inbox import ManagerInbox
from seamlessflow.consumers.trajectories.sessions.partition import Partition
from seamlessflow.infra.kafka.bounds import BoundsLookup
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.schemas.topics import REQUESTS

RequestBounds = Mapping[int, tuple[int, int]]
"""First offset, and the offset behind the last record, by partition."""
_CLOSE_TIMEOUT_S = 10
_ASK_S = 5.0
_EVERY_MS = 1_000


class RequestEnds:
    """The ends of this manager's owned partitions. Main thread only; no method blocks.

    At most one measurement is under way.
    """

    def __init__(
        self,
        partitions: Mapping[int, Partition],
        ask: Callable[[Sequence[int], Callable[[RequestBounds], None]], None],
        inbox: ManagerInbox,
        clock: Callable[[], int],
    ) -> None:
        """`ask` calls its second argument with the bounds, on another thread."""
        self._partitions = partitions
        self._ask = ask
        self._inbox = inbox
        self._clock = clock
        self._under_way = False
        self._next_ms = 0

    def want(self) -> None:
        """Measure in the next round."""
        self._next_ms = 0

    def look(self) -> None:
        """Begin a measurement if one is due. Called once a round."""
        now_ms = self._clock()
        owned = [partition for partition in self._partitions.values() if partition.owned]
        if self._under_way or not owned or now_ms < self._next_ms:
            return
        self._under_way = True
        self._next_ms = now_ms + _EVERY_MS
        numbers = [partition.number for partition in owned]
        # Runs on another thread; `_note_bounds` then runs on the main thread.
        self._ask(
            numbers,
            lambda bounds: self._inbox.post(partial(self._note_bounds, owned, now_ms, bounds)),
        )

    def _note_bounds(self, asked: list[Partition], asked_ms: int, bounds: RequestBounds) -> None:
        self._under_way = False
        for partition in asked:
            # A partition that was assigned again meanwhile is another object: skip it.
            if partition.number in bounds and self._partitions.get(partition.number) is partition:
                start, end = bounds[partition.number]
                partition.note_bounds(start, end, asked_ms, self._clock())


class BoundsReader:
    """Thread that answers questions one by one, leaving out partitions without a leader."""

    def __init__(self, kafka: KafkaSettings, failed: Callable[[BaseException], None]) -> None:
        self._lookup = BoundsLookup(kafka)
        self._failed = failed
        self._asked: SimpleQueue[tuple[Sequence[int], Callable[[RequestBounds], None]] | None] = (
            SimpleQueue()
        )
        self._thread = threading.Thread(target=self._run, name="bounds reader", daemon=True)
        self._thread.start()

    def ask(self, numbers: Sequence[int], answer: Callable[[RequestBounds], None]) -> None:
        """Call `answer` on this thread with these partitions' bounds. Returns at once."""
        self._asked.put((numbers, answer))

    def close(self) -> None:
        """End the thread; blocks for 10 s at most."""
        self._asked.put(None)
        self._thread.join(_CLOSE_TIMEOUT_S)

    def _run(self) -> None:
        try:
            while (question := self._asked.get()) is not None:
                numbers, answer = question
                places = [(REQUESTS.name, number) for number in numbers]
                by_place = self._lookup.bounds(places, _ASK_S)
                answer({number: bounds for (_, number), bounds in by_place.items()})
            self._lookup.close()
        except BaseException as error:
            # The owner ends the process with it; otherwise deadlines would wait for ever.
            self._failed(error)
