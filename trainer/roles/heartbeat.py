"""Heartbeats and activity reports, from a thread of their own: a step may take minutes."""

import threading
from collections.abc import Callable
from dataclasses import dataclass

from infra.kafka.producer import Producer
from infra.worker.activity import ActivityAccount
from schemas.records import WorkerHeartbeat
from schemas.topics import CONTROL, FLEET, fleet_key
from trainer.roles.roles import TrainerRoles
from trainer.settings import TrainerSettings

_END_TIMEOUT_S = 10


@dataclass(slots=True)
class Vitals:
    """What the loop tells the world about itself."""

    state: str = "starting"
    """starting, ready, asleep, training or failed."""
    version: int | None = None
    """Policy version in memory."""


class Heartbeat:
    """Writes `WorkerHeartbeat` to `fleet` and `WorkerUsage` to `control` until closed."""

    def __init__(
        self,
        settings: TrainerSettings,
        producer: Producer,
        roles: TrainerRoles,
        vitals: Vitals,
        activity: ActivityAccount,
        now_ms: Callable[[], int],
    ) -> None:
        self._settings = settings
        self._producer = producer
        self._roles = roles
        self._vitals = vitals
        self._activity = activity
        self._now_ms = now_ms
        self._ending = threading.Event()
        self._accounted_ms = now_ms()
        self._thread = threading.Thread(target=self._run, name="trainer heartbeat", daemon=True)

    def start(self) -> None:
        """Begins, with a first beat before it returns."""
        self.beat()
        self._thread.start()

    def beat(self) -> None:
        """Tells the present state at once."""
        trainer, roles = self._settings.trainer, self._roles
        record = WorkerHeartbeat(
            worker=roles.worker,
            incarnation=roles.incarnation,
            process="train",
            tags=trainer.tags,
            role="train" if roles.held else "none",
            assignment=roles.assignment,
            state=self._vitals.state,
            version=self._vitals.version,
            policy=self._settings.run.policy,
            hardware=trainer.hardware,
            at_ms=self._now_ms(),
        )
        self._producer.send(FLEET.name, record, key=fleet_key(record))

    def account(self) -> None:
        """Tells what was done since the last account."""
        self._accounted_ms = self._now_ms()
        if record := self._activity.report(self._roles.incarnation, self._accounted_ms):
            self._producer.send(CONTROL.name, record)

    def close(self) -> None:
        """Ends with a last sign of life and a last account."""
        self._ending.set()
        self._thread.join(_END_TIMEOUT_S)
        self.beat()
        self.account()

    def _run(self) -> None:
        trainer = self._settings.trainer
        while not self._ending.wait(trainer.heartbeat_s):
            self.beat()
            if self._now_ms() - self._accounted_ms >= trainer.usage_s * 1000:
                self.account()
