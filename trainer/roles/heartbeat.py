"""Heartbeats and activity records of a trainer process.

A thread of its own sends them, because the main thread may wait for minutes: when it loads a model,
or when it saves at the end.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from infra.kafka.producer import Producer
from infra.worker.activity import ActivityAccount
from schemas.records import WorkerHeartbeat
from schemas.releases import this_release
from schemas.topics import CONTROL, FLEET, fleet_key
from trainer.roles.roles import TrainerRoles
from trainer.settings import TrainerSettings

_END_TIMEOUT_S = 10


@dataclass(slots=True)
class TrainerStatus:
    """The state of the process as heartbeats report it; the loop's thread writes it."""

    state: str = "starting"
    """`starting`, `ready`, `asleep`, `training` or `failed`."""
    version: int | None = None
    """Policy version in memory."""


@dataclass(eq=False)
class Heartbeat:
    """The thread that sends `WorkerHeartbeat` to `fleet` and `WorkerUsage` to `control`."""

    _settings: TrainerSettings
    _producer: Producer
    _roles: TrainerRoles
    _status: TrainerStatus
    _activity: ActivityAccount
    _now_ms: Callable[[], int]
    _ending: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self._reported_ms = self._now_ms()
        self._thread = threading.Thread(target=self._run, name="trainer heartbeat", daemon=True)

    def start(self) -> None:
        """Send the first heartbeat, then start the thread."""
        self.send()
        self._thread.start()

    def send(self) -> None:
        """Send a heartbeat at once, from any thread."""
        trainer, roles = self._settings.trainer, self._roles
        record = WorkerHeartbeat(
            worker=roles.worker,
            incarnation=roles.incarnation,
            process="train",
            tags=trainer.tags,
            role="train" if roles.held else "none",
            assignment=roles.assignment,
            state=self._status.state,
            version=self._status.version,
            policy=self._settings.run.policy,
            hardware=trainer.hardware,
            at_ms=self._now_ms(),
            release=this_release().version,
        )
        self._producer.send(FLEET.name, record, key=fleet_key(record))

    def report_activity(self) -> None:
        """Send the activity since the last report, unless there was no role in that time."""
        self._reported_ms = self._now_ms()
        if record := self._activity.report(self._roles.incarnation, self._reported_ms):
            self._producer.send(CONTROL.name, record)

    def close(self) -> None:
        """End the thread, then send a last heartbeat and a last activity record."""
        self._ending.set()
        self._thread.join(_END_TIMEOUT_S)
        self.send()
        self.report_activity()

    def _run(self) -> None:
        trainer = self._settings.trainer
        while not self._ending.wait(trainer.heartbeat_s):
            self.send()
            if self._now_ms() - self._reported_ms >= trainer.usage_s * 1000:
                self.report_activity()
