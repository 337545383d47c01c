"""Starts and ends of partitions of `requests`, asked for in a thread of its own.

A question waits for Kafka, in an outage for seconds: no reader of records may stand still for it.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from queue import SimpleQueue

from seamlessflow.infra.kafka.bounds import BoundsLookup
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.schemas.topics import REQUESTS

Bounds = Mapping[int, tuple[int, int]]
"""First offset and the one behind the last record, by partition."""
_CLOSE_TIMEOUT_S = 10
_ASK_S = 5.0


class BoundsReader:
    """Thread that answers one question after the other, without partitions that have no leader."""

    def __init__(self, kafka: KafkaSettings, failed: Callable[[BaseException], None]) -> None:
        self._lookup = BoundsLookup(kafka)
        self._failed = failed
        self._asked: SimpleQueue[tuple[Sequence[int], Callable[[Bounds], None]] | None] = (
            SimpleQueue()
        )
        self._thread = threading.Thread(target=self._run, name="bounds reader", daemon=True)
        self._thread.start()

    def ask(self, numbers: Sequence[int], answer: Callable[[Bounds], None]) -> None:
        """Call `answer` on this thread with the bounds of these partitions. Returns at once."""
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
