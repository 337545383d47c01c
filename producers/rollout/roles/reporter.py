"""What others are told of a rollout process: heartbeats, usage, and its own events on `control`.

Main loop only. A failed delivery of any of these ends the process by the producer's next call.
"""

from collections.abc import Callable

from infra.kafka.producer import Producer
from producers.rollout.engine.contract import EngineHealth
from producers.rollout.roles.announcements import Facts, State, heartbeat
from producers.rollout.roles.roles import RolloutRoles
from producers.rollout.roles.usage import Activity, Usage
from schemas.records import Record
from schemas.topics import CONTROL, FLEET, fleet_key

HEARTBEAT_MS = 1_000
USAGE_MS = 2_000


class Reporter:
    """`due_ms` is when `tick` has something to do again."""

    def __init__(self, producer: Producer, roles: RolloutRoles, facts: Facts, now_ms: int) -> None:
        self._producer = producer
        self._roles = roles
        self._facts = facts
        self._usage = Usage(roles.worker, now_ms)
        self._usage_due_ms = now_ms + USAGE_MS
        self._beat_due_ms = now_ms
        self._state: State | None = None
        self._key = ""

    @property
    def due_ms(self) -> int:
        """The sooner of heartbeat and usage."""
        return min(self._beat_due_ms, self._usage_due_ms)

    def announce(self, record: Record) -> None:
        """Writes to `control`."""
        self._producer.send(CONTROL.name, record, partition=0)

    def tick(
        self,
        state: State,
        activity: Activity,
        health: Callable[[], EngineHealth | None],
        tokens: int,
        now_ms: int,
    ) -> None:
        """Takes note of what goes on and writes what is due; a change of state is told at once."""
        self._usage.now(activity, now_ms)
        if now_ms >= self._beat_due_ms or state != self._state:
            self.beat(state, health(), now_ms)
        if now_ms >= self._usage_due_ms:
            self._usage_due_ms = now_ms + USAGE_MS
            usage = self._usage.report(self._roles.incarnation, tokens, now_ms)
            if usage is not None:
                self.announce(usage)

    def beat(self, state: State, health: EngineHealth | None, now_ms: int) -> None:
        """Writes a heartbeat."""
        record = heartbeat(self._roles, self._facts, state, health, now_ms)
        self._key = fleet_key(record)
        self._producer.send(FLEET.name, record, key=self._key)
        self._state, self._beat_due_ms = state, now_ms + HEARTBEAT_MS

    def rejoin(self) -> None:
        """A new incarnation is to be seen at once."""
        self._state = None

    def vanish(self) -> None:
        """Takes the heartbeat off `fleet`."""
        self._producer.send_bytes(FLEET.name, None, self._key)
