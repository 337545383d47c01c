"""A rollout process's reporter: its heartbeats, activity, and events on `control`.

Main loop only. If one of these cannot be delivered, the producer raises at its next call, which
ends the process.
"""

from collections.abc import Callable

from seamlessflow.infra.kafka.producer import Producer
from seamlessflow.infra.worker.activity import Activity, ActivityAccount
from seamlessflow.infra.worker.roles import ENDED
from seamlessflow.producers.rollout.engine.contract import Engine, EngineHealth
from seamlessflow.producers.rollout.roles.announcements import AnnouncedState, Facts, heartbeat
from seamlessflow.producers.rollout.roles.roles import RolloutRoles
from seamlessflow.schemas.records import Record
from seamlessflow.schemas.topics import CONTROL, FLEET, fleet_key

HEARTBEAT_MS = 1_000
ACTIVITY_MS = 2_000


class Reporter:
    """Writer for heartbeats and events. Call `tick` at `due_ms` at the latest."""

    def __init__(self, producer: Producer, roles: RolloutRoles, facts: Facts, now_ms: int) -> None:
        self._producer = producer
        self._roles = roles
        self._facts = facts
        self._account = ActivityAccount(roles.worker, "rollout", now_ms)
        self._tokens = 0
        self._engine: Engine | None = None
        self._passes_s = 0.0, 0.0
        self._activity_due_ms = now_ms + ACTIVITY_MS
        self._beat_due_ms = now_ms
        self._state: AnnouncedState | None = None
        self._key = ""

    @property
    def due_ms(self) -> int:
        """Time at which the next heartbeat or activity report is due, whichever is sooner."""
        return min(self._beat_due_ms, self._activity_due_ms)

    def announce(self, record: Record) -> None:
        """Write an event to `control`."""
        self._producer.send(CONTROL.name, record, partition=0)

    def tick(
        self,
        state: AnnouncedState,
        activity: Activity,
        health: Callable[[], EngineHealth | None],
        tokens: int,
        now_ms: int,
    ) -> None:
        """Note the activity and write what is due; a change of state is written at once."""
        self._account.enter(activity, now_ms)
        if now_ms >= self._beat_due_ms or state != self._state:
            self.beat(state, health(), now_ms)
        if now_ms >= self._activity_due_ms:
            self._account.add_tokens(tokens - self._tokens)
            self._tokens = tokens
            self._report(now_ms)

    def follow(self, engine: Engine | None) -> None:
        """Account for this engine's passes from now on; None: for no engine."""
        if engine is not self._engine:
            self._count_passes()
            self._engine = engine
            self._passes_s = _passes_s(engine)

    def beat(self, state: AnnouncedState, health: EngineHealth | None, now_ms: int) -> None:
        """Write a heartbeat."""
        record = heartbeat(self._roles, self._facts, state, health, now_ms)
        self._key = fleet_key(record)
        self._producer.send(FLEET.name, record, key=self._key)
        self._state = state
        self._beat_due_ms = now_ms + HEARTBEAT_MS

    def rejoin(self) -> None:
        """Make the next `tick` write a new incarnation's heartbeat at once."""
        self._state = None

    def vanish(self, now_ms: int) -> None:
        """Write the last activity, and that the process has ended in order; delete its heartbeat.

        A reader that runs now learns of the end; a later one finds no heartbeat.
        """
        self._report(now_ms)
        self.beat(ENDED, None, now_ms)
        self._producer.send_bytes(FLEET.name, None, self._key)

    def _report(self, now_ms: int) -> None:
        self._activity_due_ms = now_ms + ACTIVITY_MS
        self._count_passes()
        report = self._account.report(self._roles.incarnation, now_ms)
        if report is not None:
            self.announce(report)

    def _count_passes(self) -> None:
        before, self._passes_s = self._passes_s, _passes_s(self._engine)
        full_s, again_s = (now - then for now, then in zip(self._passes_s, before, strict=True))
        self._account.add_passes(full_s, again_s)


def _passes_s(engine: Engine | None) -> tuple[float, float]:
    """Return its full-batch seconds and its recomputing seconds; 0 without an engine."""
    if engine is None:
        return 0.0, 0.0
    health = engine.health()
    return health.full_batch_seconds, health.recomputing_seconds
