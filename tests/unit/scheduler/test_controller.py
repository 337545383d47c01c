"""The scheduler's loop without Kafka: statistics are there before a snapshot that covers them."""

from pathlib import Path

import pytest

from seamlessflow.infra.errors import KafkaUnavailable
from seamlessflow.infra.kafka.messages import refusing
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.infra.telemetry.metrics import Metrics
from seamlessflow.scheduler.controller import Controller
from seamlessflow.scheduler.journal import CONTROL_LOG, Journal
from seamlessflow.scheduler.settings import PacingSection, SchedulerSection
from seamlessflow.scheduler.state.unread import GroupLook
from seamlessflow.schemas import records as r
from seamlessflow.schemas.codec import encode
from seamlessflow.schemas.records import Record
from seamlessflow.schemas.topics import ARMS, CONTROL, FLEET
from seamlessflow.schemas.written import EncodeRecord
from tests.builders.records import control
from tests.builders.scheduler.inputs import arms_fold, rules_for, scheduler_settings
from tests.builders.scheduler.scripted_reader import ScriptedReader
from tests.builders.schemas.made_up import FIRST, encoder

RESULTS: tuple[Record, ...] = (
    control.claimed(1),
    control.admitted("run-0", "task-0"),
    control.ready("run-0", returns=(1.0, 0.0)),
)


class Kafka:
    """Records that were sent, in their order; those of `control` come back to the reader.

    `away`: none is acknowledged.
    """

    def __init__(self, reader: ScriptedReader) -> None:
        self.away = False
        self.encode: EncodeRecord = encode
        self.records: list[tuple[str, Record]] = []
        self.removed: list[str] = []
        self._acknowledged = 0
        self._reader = reader

    def written(self, topic: str) -> list[Record]:
        return [record for name, record in self.records if name == topic]

    def send(self, topic: str, record: Record, *, key: str | None = None) -> None:
        self.encode(record)
        self.records.append((topic, record))
        if topic == CONTROL.name:
            self._reader.later(CONTROL_LOG, record)

    def send_bytes(self, topic: str, value: bytes | None, key: str | bytes | None = None) -> None:
        assert value is None
        self.removed.append(str(key))

    def check(self) -> None:
        pass

    @property
    def sent(self) -> int:
        return len(self.records)

    def settled(self, number: int) -> bool:
        if not self.away:
            self._acknowledged = self.sent
        return self._acknowledged >= number

    def flush(self, timeout_s: float) -> None:
        if not self.settled(self.sent):
            raise KafkaUnavailable("nowhere", timeout_s)


class Nothing:
    """Dead letters and consumer groups without anything to do."""

    def release(self) -> None:
        pass

    def take(self) -> list[GroupLook]:
        return []


@pytest.fixture
def reader() -> ScriptedReader:
    return ScriptedReader(control=[RESULTS])


@pytest.fixture
def kafka(reader: ScriptedReader) -> Kafka:
    return Kafka(reader)


def controller(reader: ScriptedReader, kafka: Kafka) -> Controller:
    settings = scheduler_settings(
        scheduler=SchedulerSection(snapshot_s=1e-9), pacing=PacingSection(tasks=Path("tasks.jsonl"))
    )
    journal = Journal(KafkaSettings(), reader, lambda: 0)
    nothing = Nothing()
    return Controller(
        settings,
        rules_for(settings),
        kafka,
        journal,
        lambda: 0,
        "me",
        Metrics(),
        nothing,
        nothing,
    )


def run_loops(scheduler: Controller, count: int) -> None:
    """Let it go through so many loops behind its claim."""
    left = iter(range(count + 4))
    scheduler.run(lambda: next(left, None) is None)


def test_statistics_are_written_before_the_snapshot_that_covers_them(
    reader: ScriptedReader, kafka: Kafka
) -> None:
    run_loops(controller(reader, kafka), 3)

    arms = [record for record in kafka.written(ARMS.name) if isinstance(record, r.ArmSnapshot)]
    assert {each.arm for each in arms} == set(arms_fold(RESULTS).by_name)
    topics = [name for name, _ in kafka.records if name in (ARMS.name, FLEET.name)]
    assert topics[: len(arms)] == [ARMS.name] * len(arms)
    assert FLEET.name in topics


def test_statistics_without_a_change_are_not_written_again(
    reader: ScriptedReader, kafka: Kafka
) -> None:
    run_loops(controller(reader, kafka), 9)

    assert len(kafka.written(FLEET.name)) > 3
    assert len(kafka.written(ARMS.name)) == len(arms_fold(RESULTS).by_name)


def test_no_snapshot_is_written_until_kafka_has_its_statistics(
    reader: ScriptedReader, kafka: Kafka
) -> None:
    scheduler = controller(reader, kafka)
    kafka.away = True
    run_loops(scheduler, 9)

    assert not kafka.written(FLEET.name)
    # What waits in the queue is not sent a second time.
    assert len(kafka.written(ARMS.name)) == len(arms_fold(RESULTS).by_name)


def test_pinned_to_a_release_without_statistics_a_successor_folds_them_from_the_beginning(
    reader: ScriptedReader, kafka: Kafka
) -> None:
    kafka.encode = refusing(FIRST, encoder(FIRST))
    run_loops(controller(reader, kafka), 9)

    assert not kafka.written(ARMS.name)
    snapshots = [
        each for each in kafka.written(FLEET.name) if isinstance(each, r.SchedulerSnapshot)
    ]
    assert len(snapshots) > 3
    assert {each.state for each in snapshots} == {b""}
