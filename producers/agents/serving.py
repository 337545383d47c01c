"""Time in which an engine can answer: the clock of an episode stands for the rest.

Else an agent would be charged for an engine that starts slowly, is away, or trains. Engines are
known by the heartbeats of rollout processes on `fleet`. As long as there was none, all time counts.
Called by `episode.py` and `runner.py`.
"""

import time
from collections.abc import Callable, Iterable

from infra.clock import now_ms
from infra.kafka.client import BEGINNING, Received
from infra.kafka.reader import Reader
from infra.kafka.reader_thread import ReaderThread
from infra.settings import KafkaSettings
from schemas.records import Record, WorkerHeartbeat
from schemas.topics import FLEET

VALID_S = 10.0
"""Time for which a heartbeat counts."""
_BEATS = b"WorkerHeartbeat/"
_ROLLOUT = "rollout"
_READY = "ready"


class ServingTime:
    """Seconds in which some rollout process was ready. Used from the event loop."""

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        wall_clock_ms: Callable[[], int] = now_ms,
    ) -> None:
        self._clock = clock
        self._wall_clock_ms = wall_clock_ms
        self._counted_to_s = clock()
        self._elapsed_s = 0.0
        self._ready_until_s: dict[str, float] = {}
        self._any_seen = False

    def note(self, records: Iterable[Record]) -> None:
        """Take in records of `fleet`."""
        for record in records:
            if isinstance(record, WorkerHeartbeat) and record.process == _ROLLOUT:
                self._note(record)

    def elapsed_s(self) -> float:
        """Return the seconds since the beginning in which an engine could answer."""
        now_s = self._clock()
        ready_until_s = max(self._ready_until_s.values(), default=self._counted_to_s)
        until_s = min(now_s, ready_until_s) if self._any_seen else now_s
        self._elapsed_s += max(0.0, until_s - self._counted_to_s)
        self._counted_to_s = now_s
        return self._elapsed_s

    def _note(self, beat: WorkerHeartbeat) -> None:
        self.elapsed_s()  # what was before it does not follow from it
        self._any_seen = True
        if beat.state == _READY:
            age_s = max(0, self._wall_clock_ms() - beat.at_ms) / 1000
            self._ready_until_s[beat.worker] = self._counted_to_s + VALID_S - age_s
        else:
            self._ready_until_s.pop(beat.worker, None)


def watch_engines(
    settings: KafkaSettings,
    client_id: str,
    note: Callable[[list[Record]], object],
    failed: Callable[[BaseException], object],
) -> ReaderThread:
    """Read the heartbeats on `fleet` in a thread, which calls `note` and `failed`."""

    def deliver(received: list[Received]) -> None:
        note([item.record for item in received])

    def fail(error: BaseException) -> None:
        failed(error)

    reader = Reader(settings, client_id, wanted=_is_rollout_beat)
    reader.assign({(FLEET.name, 0): BEGINNING})
    return ReaderThread("engines", reader, deliver, fail).start()


def _is_rollout_beat(key: bytes) -> bool:
    return key.startswith(_BEATS) and key.endswith(f"/{_ROLLOUT}".encode())
