"""A rollout process on a real log, with a test as scheduler, manager and trainer."""

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, TypeVar

from seamlessflow.infra.clock import now_ms
from seamlessflow.infra.kafka.client import BEGINNING, Received
from seamlessflow.infra.kafka.producer import Producer
from seamlessflow.infra.kafka.reader import Reader
from seamlessflow.infra.kafka.reader_thread import ReaderThread
from seamlessflow.infra.kafka.topics.creation import create_topics
from seamlessflow.infra.rendering.settings import RendererSettings
from seamlessflow.infra.settings import KafkaSettings, TelemetrySettings
from seamlessflow.infra.telemetry.metrics import Metrics
from seamlessflow.infra.telemetry.tracing import telemetry
from seamlessflow.infra.weights.versions import PublishedWeights
from seamlessflow.producers.rollout.bootstrap import build
from seamlessflow.producers.rollout.engines import engine_factory
from seamlessflow.producers.rollout.roles.device import EngineFactory
from seamlessflow.producers.rollout.settings import RolloutSection, RolloutSettings
from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Record
from seamlessflow.schemas.tokens import pack
from seamlessflow.schemas.topics import CONTROL, FLEET, PROMPTS, SESSIONS, Headers
from tests.builders.own_topics import own_topics, small
from tests.builders.records import control, fleet
from tests.builders.records.prompts import generate
from tests.paths import ROOT

DEADLINE_S = 120.0
PARTITION, OTHER_PARTITION = 5, 6
R = TypeVar("R", bound=Record)


class RunningWorker:
    """A worker in a thread of this process."""

    def __init__(self, settings: RolloutSettings, engines: EngineFactory | None) -> None:
        self.name = settings.rollout.worker
        self.error: BaseException | None = None
        self._stop = threading.Event()
        traces = telemetry(TelemetrySettings(), "rollout", self.name)
        made = engines or engine_factory(settings)
        self._worker = build(settings, traces, Metrics(), made)
        self._thread = threading.Thread(target=self._run, name=self.name)
        self._thread.start()

    def stop(self) -> None:
        """Ask the worker to end and wait until it has."""
        self._stop.set()
        self.join()

    def join(self) -> None:
        self._thread.join(DEADLINE_S)
        assert not self._thread.is_alive(), f"{self.name} did not end"

    def _run(self) -> None:
        try:
            self._worker.run(self._stop)
        except BaseException as error:  # looked at by the test
            self.error = error


class RolloutSystem:
    """Topics and the workers on them. Every worker of a test has its own name, slot and policy."""

    def __init__(self, kafka: KafkaSettings, tokenizer: Path, max_record_bytes: int) -> None:
        self.kafka = kafka
        self._tokenizer = tokenizer
        sessions = replace(SESSIONS, max_record_bytes=max_record_bytes)
        create_topics(self.kafka, small(PROMPTS, sessions, CONTROL, FLEET))
        self.producer = Producer(self.kafka, "system")
        self.log: list[Received] = []
        self._news = threading.Condition()
        self._errors: list[BaseException] = []
        self._workers: list[RunningWorker] = []
        self._processes: list[subprocess.Popen[bytes]] = []
        reader = Reader(self.kafka, "system-log")
        reader.assign(
            {(SESSIONS.name, partition): BEGINNING for partition in (PARTITION, OTHER_PARTITION)}
            | {(topic.name, 0): BEGINNING for topic in (CONTROL, FLEET)}
        )
        self._reader = ReaderThread("system-log", reader, self._take, self._errors.append).start()
        self._assignments = 0
        self.deadline_s = DEADLINE_S
        """Most seconds that any wait may take."""
        self.max_context = 512
        """Return the most tokens of prompt and completion."""

    def publish(self, policy: str, weights: PublishedWeights) -> None:
        """Publish weights as the trainer does, on `control` and `fleet`."""
        record = control.published(at_ms=now_ms(), policy=policy, **asdict(weights))
        self.producer.send(CONTROL.name, record, partition=0)
        self.producer.send(FLEET.name, self._policy(record), key=f"PolicyWeights/{policy}")

    def start(
        self,
        name: str,
        policy: str,
        engines: EngineFactory | None = None,
        **changes: Any,
    ) -> RunningWorker:
        """Start a worker in a thread; `changes` are its settings."""
        section = RolloutSection(worker=name, policy=policy, **changes)
        settings = RolloutSettings(kafka=self.kafka, rollout=section)
        self._workers.append(RunningWorker(settings, engines))
        return self._workers[-1]

    def start_process(self, name: str, policy: str, **changes: str) -> subprocess.Popen[bytes]:
        """Start a worker in a process; `changes` are variables of its section."""
        section = {"worker": name, "policy": policy, **changes}
        environment = {
            f"SEAMLESSFLOW_ROLLOUT__{key.upper()}": value for key, value in section.items()
        } | {
            "SEAMLESSFLOW_KAFKA__BOOTSTRAP_SERVERS": self.kafka.bootstrap_servers,
            "SEAMLESSFLOW_KAFKA__TOPIC_PREFIX": self.kafka.topic_prefix,
        }
        command = [sys.executable, "-m", "seamlessflow.producers.rollout"]
        process = subprocess.Popen(
            command, cwd=ROOT, env=os.environ | environment, stderr=subprocess.PIPE
        )
        self._processes.append(process)
        return process

    def incarnation(self, name: str, other_than: str = "") -> str:
        """Return the incarnation of a worker's rollout process, from its heartbeat."""
        return self.wait(
            r.WorkerHeartbeat,
            lambda beat: beat.worker == name and beat.incarnation != other_than,
        ).incarnation

    def assign(self, name: str, role: str, slot: int | None = None, incarnation: str = "") -> int:
        """Assign a role as the scheduler does; return the number of the assignment."""
        self._assignments += 1
        record = control.assigned(
            name,
            role,
            self._assignments,
            at_ms=now_ms(),
            incarnation=incarnation or self.incarnation(name),
            slot=slot,
            deadline_ms=now_ms() + 60_000,
        )
        self.producer.send(CONTROL.name, record, partition=0)
        return self._assignments

    def serve(self, name: str, slot: int, incarnation: str = "") -> r.RoleAcquired:
        """Assign the rollout role and wait until the worker has acquired it."""
        assignment = self.assign(name, "rollout", slot, incarnation)
        return self.wait(r.RoleAcquired, lambda got: got.assignment == assignment)

    def publish_unread(self, name: str, version: int) -> None:
        """Publish weights for a worker whose engine does not read them."""
        self.publish(f"policy-{name}", PublishedWeights(version, version, "nowhere", "none"))

    def serve_scripted(self, name: str, slot: int, script: dict[str, object]) -> r.RoleAcquired:
        """Start a worker with a script; return its role."""
        self.publish_unread(name, 0)
        self.start(name, f"policy-{name}", engine="scripted", scripted=script)
        return self.serve(name, slot)

    def generate(
        self,
        role: r.RoleAcquired,
        turn_id: str,
        prompt: Sequence[int] = (5, 6, 7),
        headers: Headers | None = None,
        **changes: Any,
    ) -> r.GenerateTurn:
        """Send a turn to a worker that has its role."""
        fields: dict[str, Any] = {
            "turn_id": turn_id,
            "worker": role.worker,
            "incarnation": role.incarnation,
            "session_id": f"session-{turn_id}",
            "partition": PARTITION,
            "prompt_ids": pack(list(prompt)),
            "policy": f"policy-{role.worker}",
            "deadline_ms": now_ms() + 60_000,
        }
        record = generate(**{**fields, **changes})
        self.producer.send(PROMPTS.name, record, partition=role.slot, headers=headers)
        return record

    def wait(self, kind: type[R], wanted: Callable[[R], bool]) -> R:
        """Return the first record of this kind that is wanted; wait for it."""
        records: list[R] = []

        def is_read() -> bool:
            records.extend(
                item.record
                for item in self.log
                if isinstance(item.record, kind) and wanted(item.record)
            )
            return bool(records or self._errors)

        with self._news:
            assert self._news.wait_for(is_read, self.deadline_s), f"no such {kind.__name__}"
        assert not self._errors, self._errors
        return records[0]

    def outputs(self, turn_id: str) -> list[Record]:
        """Return the output records of a turn so far."""
        with self._news:
            return [item.record for item in self.log if _turn(item.record) == turn_id]

    def completed(self, turn_id: str) -> r.TurnCompleted:
        return self.wait(r.TurnCompleted, lambda done: done.turn_id == turn_id)

    def interrupted(self, turn_id: str) -> r.TurnInterrupted:
        return self.wait(r.TurnInterrupted, lambda done: done.turn_id == turn_id)

    def progressed(self, turn_id: str, tokens: int) -> None:
        """Wait until so many tokens of a turn were written."""
        self.wait(
            r.TurnProgressed,
            lambda some: (
                some.turn_id == turn_id and some.token_offset + len(some.token_ids) // 4 >= tokens
            ),
        )

    def close(self) -> None:
        for worker in self._workers:
            worker.stop()
        for process in self._processes:
            process.kill()
            process.communicate()
        self._reader.close()
        self.producer.close()

    def _take(self, received: list[Received]) -> None:
        with self._news:
            self.log += received
            self._news.notify_all()

    def _policy(self, weights: r.WeightsPublished) -> r.PolicyWeights:
        return fleet.weights(
            policy=weights.policy,
            version=weights.version,
            step=weights.step,
            directory=weights.directory,
            manifest_sha256=weights.manifest_sha256,
            tokenizer_directory=str(self._tokenizer),
            renderer=RendererSettings("qwen3").to_json(),
            max_context=self.max_context,
            at_ms=now_ms(),
        )


def _turn(record: Record) -> str | None:
    return getattr(record, "turn_id", None)


@contextmanager
def rollout_system(
    broker: KafkaSettings, tokenizer: Path, max_record_bytes: int = SESSIONS.max_record_bytes
) -> Iterator[RolloutSystem]:
    """Yield a system and close it, its workers first."""
    with own_topics(broker) as kafka:
        system = RolloutSystem(kafka, tokenizer, max_record_bytes)
        try:
            yield system
        finally:
            system.close()
