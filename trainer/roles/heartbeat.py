"""Heartbeats and activity records of a trainer, and of a training process.

A thread of its own sends them, because the main thread may wait for minutes: when it loads a model,
or when it saves at the end.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from seamlessflow.infra.kafka.producer import Producer
from seamlessflow.schemas.records import Record, WorkerUsage
from seamlessflow.schemas.topics import CONTROL, FLEET, fleet_key
from seamlessflow.trainer.settings import TrainerSection

_END_TIMEOUT_S = 10


@dataclass(slots=True)
class TrainerStatus:
    """The state of the process as heartbeats report it; the loop's thread writes it."""

    state: str = "starting"
    """`starting`, `ready`, `asleep`, `training`, `ended` (in order) or `failed`."""
    version: int | None = None
    """Policy version in memory."""
    step: int = 0
    """Next optimizer step."""
    ending: bool = False
    """True once the process ends in order."""


@dataclass(eq=False)
class Heartbeat:
    """The thread that sends what `record` returns to `fleet`, and `usage` to `control`."""

    _settings: TrainerSection
    _producer: Producer
    _record: Callable[[], Record]
    _usage: Callable[[], WorkerUsage | None]
    """Returns the activity since its last call, None if there was no role in that time."""
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
        record = self._record()
        self._producer.send(FLEET.name, record, key=fleet_key(record))

    def report_activity(self) -> None:
        """Send the activity since the last report, unless there was no role in that time."""
        self._reported_ms = self._now_ms()
        if record := self._usage():
            self._producer.send(CONTROL.name, record)

    def close(self) -> None:
        """End the thread, then send a last heartbeat and a last activity record."""
        self._ending.set()
        self._thread.join(_END_TIMEOUT_S)
        self.send()
        self.report_activity()

    def _run(self) -> None:
        while not self._ending.wait(self._settings.heartbeat_s):
            self.send()
            if self._now_ms() - self._reported_ms >= self._settings.usage_s * 1000:
                self.report_activity()
