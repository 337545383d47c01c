"""Time in which an engine can answer: otherwise an episode's clock stands still.

Else an agent would be charged for an engine that starts slowly, is away, or trains. An agent may
call each policy of its session, so each policy needs an engine. Rollout processes' heartbeats on
`fleet` say which engines are ready. Before the first heartbeat, all time counts.
Called by `episode.py`, `play.py` and `runner.py`.
"""

import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from seamlessflow.infra.clock import now_ms
from seamlessflow.infra.kafka.client import BEGINNING, Received
from seamlessflow.infra.kafka.reader import Reader, ReadingRules
from seamlessflow.infra.kafka.reader_thread import ReaderThread
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.schemas.records import Record, WorkerHeartbeat
from seamlessflow.schemas.topics import FLEET

VALID_S = 10.0
"""A heartbeat counts for so long."""
_BEATS = b"WorkerHeartbeat/"
_ROLLOUT = "rollout"
_READY = "ready"
_STANDS_KEPT = 1000


@dataclass(slots=True)
class _Clock:
    """Clock for some policies: how long all had a ready engine, and when not all had one."""

    counted_to_s: float
    elapsed_s: float = 0.0
    stands: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=_STANDS_KEPT))
    """Begin and end of each time it stood, the oldest first."""

    def advance(self, now_s: float, ready_until_s: float) -> None:
        """Count the time up to `now_s`; engines were ready until `ready_until_s`."""
        stands_from_s = max(self.counted_to_s, min(now_s, ready_until_s))
        self.elapsed_s += stands_from_s - self.counted_to_s
        if stands_from_s < now_s:
            joins = bool(self.stands) and self.stands[-1][1] == stands_from_s
            begin_s = self.stands.pop()[0] if joins else stands_from_s
            self.stands.append((begin_s, now_s))
        self.counted_to_s = now_s

    def stood_s(self, since_s: float) -> float:
        """Return how long the clock has stood since then."""
        return sum(max(0.0, end_s - max(begin_s, since_s)) for begin_s, end_s in self.stands)


class ServingTime:
    """Seconds in which each of a session's policies had a ready engine. In the event loop."""

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        wall_clock_ms: Callable[[], int] = now_ms,
    ) -> None:
        self._clock = clock
        self._wall_clock_ms = wall_clock_ms
        self._clocks: dict[frozenset[str], _Clock] = {}
        """By the policies that a session may call; none: any will do."""
        self._ready: dict[str, tuple[str, float]] = {}
        """By worker that is ready: its policy, and until when its last heartbeat counts."""
        self._any_seen = False
        self._count(frozenset())

    def note(self, records: Iterable[Record]) -> None:
        """Take in records from `fleet`."""
        for record in records:
            if isinstance(record, WorkerHeartbeat) and record.process == _ROLLOUT:
                self._note(record)

    def elapsed_s(self, policies: Iterable[str] = ()) -> float:
        """Return the seconds in which each policy had an engine that could answer.

        They count from the first call for these policies. Without policies, any engine will do, and
        they count from the beginning.
        """
        return self._count(frozenset(policies)).elapsed_s

    def stood_s(self, policies: Iterable[str], since_ms: int) -> float:
        """Return how long that clock stood still since then, as far as it is known."""
        since_s = self._clock() - (self._wall_clock_ms() - since_ms) / 1000
        return self._count(frozenset(policies)).stood_s(since_s)

    def _count(self, policies: frozenset[str]) -> _Clock:
        """Return the clock of these policies, which counts up to now."""
        now_s = self._clock()
        clock = self._clocks.setdefault(policies, _Clock(now_s))
        clock.advance(now_s, self._ready_until_s(policies) if self._any_seen else now_s)
        return clock

    def _ready_until_s(self, policies: frozenset[str]) -> float:
        """Return until when each policy has a ready engine."""
        if not policies:
            return max((until_s for _, until_s in self._ready.values()), default=0.0)
        return min(
            max(
                (until_s for policy, until_s in self._ready.values() if policy in (name, "")),
                default=0.0,
            )
            for name in policies
        )

    def _note(self, beat: WorkerHeartbeat) -> None:
        for policies in self._clocks:
            self._count(policies)  # the heartbeat says nothing about the time before it
        self._any_seen = True
        if beat.state == _READY:
            age_s = max(0, self._wall_clock_ms() - beat.at_ms) / 1000
            self._ready[beat.worker] = (beat.policy, self._clock() + VALID_S - age_s)
        else:
            self._ready.pop(beat.worker, None)


def watch_engines(
    settings: KafkaSettings,
    client_id: str,
    note: Callable[[list[Record]], object],
    failed: Callable[[BaseException], None],
) -> ReaderThread:
    """Read the heartbeats on `fleet` in a thread, which calls `note` and `failed`."""

    def deliver(received: list[Received]) -> None:
        note([item.record for item in received])

    reader = Reader(settings, client_id, rules=ReadingRules(wanted=_is_rollout_beat))
    reader.assign({(FLEET.name, 0): BEGINNING})
    return ReaderThread("engines", reader, deliver, failed).start()


def _is_rollout_beat(key: bytes) -> bool:
    return key.startswith(_BEATS) and key.endswith(f"/{_ROLLOUT}".encode())
