"""A worker without processes, for tests of the scheduler."""

import threading
import time

from seamlessflow.infra.clock import now_ms
from seamlessflow.infra.kafka.client import BEGINNING
from seamlessflow.infra.kafka.producer import Producer
from seamlessflow.infra.kafka.reader import Reader
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.schemas import records as r
from seamlessflow.schemas.topics import CONTROL, FLEET, fleet_key
from tests.builders.records import control, fleet
from tests.builders.scheduler.control_log import LIMIT_S


class FakeWorker:
    """Both processes of a worker: they send heartbeats and acquire each role at once.

    Those in `refuses` are never acquired, and released when they have timed out.
    """

    def __init__(
        self,
        kafka: KafkaSettings,
        name: str,
        tags: tuple[str, ...],
        refuses: tuple[str, ...] = (),
    ) -> None:
        self.name = name
        self._tags = tags
        self._refuses = refuses
        self._role = "none"
        self._producer = Producer(kafka, name)
        self._reader = Reader(kafka, name)
        self._reader.assign({(CONTROL.name, 0): BEGINNING})
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name)
        self._thread.start()

    def stop_heartbeats(self) -> None:
        """Send no heartbeat any more."""
        self._stop.set()
        self._thread.join(LIMIT_S)

    def close(self) -> None:
        """Stop the heartbeats and close the clients."""
        self.stop_heartbeats()
        self._producer.close()
        self._reader.close()

    def _run(self) -> None:
        due = 0.0
        while not self._stop.is_set():
            if time.monotonic() >= due:
                due = time.monotonic() + 0.2
                self._send_heartbeats()
            for item in self._reader.poll(0.05):
                match item.record:
                    case r.RoleAssigned(worker=self.name):
                        self._obey(item.record)
                    case r.AssignmentTimedOut(worker=self.name):
                        self._release(item.record.role, item.record.assignment)

    def _send_heartbeats(self) -> None:
        for process in self._tags:
            sign = fleet.heartbeat(
                self.name, process, tags=self._tags, incarnation=f"{self.name}-1", at_ms=now_ms()
            )
            self._producer.send(FLEET.name, sign, key=fleet_key(sign))

    def _release(self, role: str, assignment: int) -> None:
        released = control.released(
            self.name, role, assignment, incarnation=f"{self.name}-1", at_ms=now_ms()
        )
        self._producer.send(CONTROL.name, released)

    def _obey(self, record: r.RoleAssigned) -> None:
        if record.role in self._refuses:
            return
        if self._role not in ("none", record.role):
            self._release(self._role, record.assignment)
        self._role = record.role
        acquired = control.acquired(
            self.name,
            record.role,
            record.assignment,
            incarnation=record.incarnation,
            slot=record.slot,
            at_ms=now_ms(),
        )
        self._producer.send(CONTROL.name, acquired)
