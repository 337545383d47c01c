"""A scheduler that only gives trainers their roles and starts their steps."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from seamlessflow.infra.kafka.client import BEGINNING
from seamlessflow.infra.kafka.producer import Producer
from seamlessflow.infra.kafka.reader import Reader
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Record
from seamlessflow.schemas.topics import CONTROL, FLEET
from tests.builders.records import control

R = TypeVar("R", bound=Record)


TIMEOUT_S = 240


class ScriptedScheduler:
    """A scheduler that assigns roles to trainers and starts a step for each batch."""

    def __init__(
        self, kafka: KafkaSettings, workers: Sequence[str] = ("w",), others: Sequence[str] = ()
    ) -> None:
        """Start the scheduler; `others` are workers of the gang that never answer."""
        self._producer = Producer(kafka, "test-scheduler")
        self._reader = Reader(kafka, "test-scheduler-reader")
        self._reader.assign({(CONTROL.name, 0): BEGINNING, (FLEET.name, 0): BEGINNING})
        self._workers = workers
        self._others = others
        self._incarnations: dict[str, str] = {}
        self._devices = dict.fromkeys(others, 1)
        self._assignment = 0
        self._gang_epoch = 0
        self._acquired: set[int] = set()
        self._batch: r.BatchReady | None = None
        self.read: list[Record] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def send(self, record: Record) -> None:
        self._producer.send(CONTROL.name, record)

    def assign(self, role: str = "train") -> None:
        self._gang_epoch += 1
        self._acquired.clear()
        for worker in self._workers:
            self._assignment += 1
            self.send(
                control.assigned(
                    worker,
                    role,
                    self._assignment,
                    incarnation=self._incarnations[worker],
                    gang_epoch=self._gang_epoch,
                    deadline_ms=2**60,
                )
            )

    def records(self, kind: type[R]) -> list[R]:
        return [record for record in self.read if isinstance(record, kind)]

    def wait_for(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while not condition():
            if time.monotonic() > deadline:
                read = Counter(type(record).__name__ for record in self.read)
                raise TimeoutError(f"read only {dict(read)}")
            self._stop.wait(0.02)

    def wait_for_count(self, kind: type[Record], count: int) -> None:
        self.wait_for(lambda: len(self.records(kind)) >= count)

    def close(self) -> None:
        self._stop.set()
        self._thread.join(10)
        self._reader.close()
        self._producer.close()

    def _run(self) -> None:
        while not self._stop.is_set():
            for received in self._reader.poll(0.1):
                self.read.append(received.record)
                self._react(received.record)

    def _react(self, record: Record) -> None:
        match record:
            case r.WorkerHeartbeat() if self._incarnations.get(record.worker) != record.incarnation:
                self._incarnations[record.worker] = record.incarnation
                self._devices[record.worker] = max(1, len(record.devices))
                if len(self._incarnations) == len(self._workers):
                    self.assign()
            case r.RoleAcquired():
                self._acquired.add(record.assignment)
            case r.BatchReady():
                self._batch = record
        newest = set(range(self._assignment - len(self._workers) + 1, self._assignment + 1))
        if self._batch is not None and self._assignment and newest <= self._acquired:
            self.send(
                control.started(
                    (*self._workers, *self._others),
                    self._batch.step,
                    gang_epoch=self._gang_epoch,
                    devices=sum(self._devices.values()),
                )
            )
            self._batch = None


def environment(kafka: KafkaSettings, model: Path, data: Path, **more: object) -> dict[str, str]:
    settings: dict[str, object] = {
        "KAFKA__BOOTSTRAP_SERVERS": kafka.bootstrap_servers,
        "KAFKA__TOPIC_PREFIX": kafka.topic_prefix,
        "DATA_DIR": data,
        "RUN__POLICY": "tiny",
        "RUN__STEPS": 6,
        "RUN__GROUPS_PER_STEP": 4,
        "RUN__LAG": 100,
        "POLICY__MODEL": model,
        "POLICY__RENDERER": '{"name": "qwen3"}',
        "TRAINER__WORKER": "w",
        "TRAINER__DEVICE": "cpu",
        "TRAINER__THREADS": 1,
        "TRAINER__OPTIMIZER__LR": 0.02,
        "TRAINER__HEARTBEAT_S": 0.2,
        **more,
    }
    return {f"SEAMLESSFLOW_{name}": str(value) for name, value in settings.items()}
