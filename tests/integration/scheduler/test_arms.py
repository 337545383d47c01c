"""Statistics of tasks on a real broker: each scheduler has those of the whole log."""

import random
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from seamlessflow.infra.broker.broker import Broker
from seamlessflow.infra.broker.programs import SHORT_LIVED
from seamlessflow.infra.clock import now_ms
from seamlessflow.infra.kafka.client import consumer_options
from seamlessflow.infra.kafka.producer import Producer
from seamlessflow.infra.kafka.reader import Reader, ReadingRules
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.scheduler.journal import Journal
from seamlessflow.scheduler.state import state
from seamlessflow.scheduler.state.arms import Arms
from seamlessflow.scheduler.state.ledger import source_arm
from seamlessflow.scheduler.state.state import State
from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Record
from seamlessflow.schemas.topics import ARMS, CONTROL, arm_key
from tests.builders.records import control
from tests.builders.scheduler.control_log import LIMIT_S, ControlLog
from tests.builders.scheduler.fake_worker import FakeWorker
from tests.builders.scheduler.inputs import arms_fold
from tests.builders.scheduler.process import SchedulerProcess, scheduler_process
from tests.builders.scheduler.scripted_trainer import ScriptedTrainer
from tests.waiting import until

B, CREDITS = 2, 4
TASKS, LEVELS = 12, 3
OFTEN, ONCE = 0.05, 1_000
Start = Callable[..., AbstractContextManager[SchedulerProcess]]


@pytest.fixture
def log(kafka: KafkaSettings) -> Iterator[ControlLog]:
    """Return the log, with weights published and a worker that rolls out."""
    log = ControlLog(kafka)
    log.write(control.published(at_ms=now_ms()))
    with closing(log), closing(FakeWorker(kafka, "a", ("rollout",))):
        yield log


@pytest.fixture
def start(kafka: KafkaSettings, tmp_path: Path) -> Start:
    """Return a function that starts a scheduler whose tasks a sampler draws."""
    return lambda **settings: sampling_scheduler(kafka, tmp_path, **settings)


def sampling_scheduler(
    kafka: KafkaSettings, directory: Path, **settings: object
) -> AbstractContextManager[SchedulerProcess]:
    tasks = directory / "tasks.jsonl"
    tasks.write_text(
        "".join(
            f'{{"id": "task-{number}", "metadata": {{"level": {number % LEVELS}}}}}\n'
            for number in range(TASKS)
        )
    )
    named = {
        "run__groups_per_step": B,
        "run__group_size": 2,
        "run__lag": 1,
        "run__steps": 1_000,
        "pacing__tasks": tasks,
        "pacing__sampler__name": "vade",
        **settings,
    }
    return scheduler_process(kafka, directory, **named)


def check_records(log: ControlLog) -> None:
    """Fail unless each record of `arms` says what a fold of `control` up to its offset says."""
    written = log.all(r.ArmSnapshot)
    newest = max((record.control_offset for record in written), default=-1)
    arms, before = Arms(), State()
    for offset, record in enumerate(log.control(newest + 1)):
        arms.apply(before, record, offset)
        before = state.apply(before, record)
        folded = {each.arm: each for each in arms.snapshots(epoch=0, offset=offset)}
        for each in written:
            if each.control_offset == offset:
                assert replace(each, epoch=0) == folded[each.arm]


def check_snapshots(log: ControlLog) -> None:
    """Fail unless the statistics that a snapshot covers are on `arms`."""
    for snapshot in log.all(r.SchedulerSnapshot):
        end = snapshot.control_offset + 1
        arms = Arms()
        for record in log.all(r.ArmSnapshot):
            arms.restore(record, end)
        assert arms.by_name == arms_fold(log.control(end)).by_name


def check_admitted(log: ControlLog, count: int) -> None:
    """Fail unless so many groups were admitted, each once and for a task without another."""
    last = f"run-{count - 1}"
    log.wait(r.GroupAdmitted, lambda admitted: admitted.group_id == last)
    before = State()
    for record in log.all(Record):
        if isinstance(record, r.GroupAdmitted):
            under_way = [group.task_id for group in before.first.ledger.groups.values()]
            assert record.task_id not in under_way
        if isinstance(record, CONTROL.records):
            before = state.apply(before, record)
    groups = [admitted.group_id for admitted in log.all(r.GroupAdmitted)]
    assert groups == [f"run-{number}" for number in range(count)]


def check_successor(kafka: KafkaSettings, log: ControlLog) -> None:
    """Fail unless a scheduler that starts now has the statistics of all of `control`."""
    with closing(Reader(kafka, "successor", rules=ReadingRules(folds=True))) as reader:
        journal = Journal(kafka, reader, now_ms)
        journal.catch_up()
    folded = arms_fold(log.control(journal.offset + 1))
    assert journal.view.arms.by_name == folded.by_name


def check_all(kafka: KafkaSettings, log: ControlLog, trainer: ScriptedTrainer) -> None:
    check_admitted(log, trainer.trained + CREDITS)
    check_successor(kafka, log)
    check_records(log)
    check_snapshots(log)


def covered(log: ControlLog, kind: type[Record], epoch: int = 1) -> None:
    """Wait until a snapshot of the epoch covers the newest record of a kind."""
    control = [record for record in log.records if isinstance(record, CONTROL.records)]
    offset = max(at for at, record in enumerate(control) if isinstance(record, kind))
    log.wait(
        r.SchedulerSnapshot,
        lambda snapshot: snapshot.epoch == epoch and snapshot.control_offset >= offset,
    )


@pytest.mark.parametrize("moment", ["admission", "result", "snapshot", "result after a snapshot"])
def test_a_scheduler_that_takes_over_has_the_statistics_of_the_log(
    log: ControlLog, kafka: KafkaSettings, start: Start, moment: str
) -> None:
    trainer = ScriptedTrainer(log, seed=1, groups_per_step=B)
    snapshot_s = ONCE if moment in ("admission", "result") else OFTEN
    with start(scheduler__snapshot_s=snapshot_s) as first:
        log.wait(r.GroupAdmitted, count=CREDITS)
        if moment != "admission":
            for _ in range(B + 2):  # a whole step, and a result behind it
                trainer.go_on()
        if "snapshot" in moment:
            covered(log, r.GroupReady)
        if moment == "result after a snapshot":
            first.freeze()
            trainer.go_on()
        first.kill()
    check_successor(kafka, log)

    with start(scheduler__snapshot_s=OFTEN):
        for _ in range(2 * (B + 1)):
            trainer.go_on()
        check_admitted(log, trainer.trained + CREDITS)
        covered(log, r.GroupAdmitted, epoch=2)
    assert {record.epoch for record in log.all(r.ArmSnapshot)} >= {2}
    check_all(kafka, log, trainer)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_schedulers_killed_at_any_moment_lose_no_statistics(
    log: ControlLog, kafka: KafkaSettings, start: Start, seed: int
) -> None:
    print(f"seed {seed}")
    moments = random.Random(seed)
    trainer = ScriptedTrainer(log, seed, groups_per_step=B)
    for _ in range(5):
        with start(scheduler__snapshot_s=moments.choice([0.02, 0.1, ONCE])) as running:
            for _ in range(moments.randint(1, 12)):
                trainer.go_on()
            running.kill()
        check_successor(kafka, log)
    with start():
        trainer.go_on()
        check_all(kafka, log, trainer)


def test_a_scheduler_that_was_replaced_and_still_writes_changes_nothing(
    log: ControlLog, kafka: KafkaSettings, start: Start
) -> None:
    trainer = ScriptedTrainer(log, seed=2, groups_per_step=B)
    with start(scheduler__snapshot_s=OFTEN):
        log.wait(r.GroupAdmitted, count=CREDITS)
        covered(log, r.GroupAdmitted)
    read = log.control(max(snapshot.control_offset for snapshot in log.all(r.ArmSnapshot)) + 1)
    with start(scheduler__snapshot_s=OFTEN):
        for _ in range(B + 2):
            trainer.go_on()
        covered(log, r.GroupReady, epoch=2)

    replaced = arms_fold(read)
    replaced.note_written(epoch=0)
    replaced.changed.update(replaced.by_name)
    with closing(Producer(kafka, "replaced")) as producer:
        for record in replaced.snapshots(epoch=1, offset=len(read) - 1):
            producer.send(ARMS.name, record, key=arm_key(1, record.arm))
        for epoch, name in replaced.replaced(epoch=1):
            producer.send_bytes(ARMS.name, None, arm_key(epoch, name))
    check_successor(kafka, log)
    check_records(log)


def test_records_of_earlier_epochs_are_removed_once_an_arm_is_written_again(
    log: ControlLog, kafka: KafkaSettings, start: Start
) -> None:
    trainer = ScriptedTrainer(log, seed=3, groups_per_step=B)
    source = source_arm("train")
    for epoch in (1, 2):
        with start(scheduler__snapshot_s=OFTEN):
            for _ in range(B + 1):
                trainer.go_on()
            check_admitted(log, trainer.trained + CREDITS)
            covered(log, r.GroupAdmitted, epoch)
            assert newest_value(kafka, arm_key(epoch, source)) is not None
    until(lambda: newest_value(kafka, arm_key(1, source)) is None, "the removal")


def newest_value(kafka: KafkaSettings, key: str) -> bytes | None:
    """Return the value of the newest record with a key on `arms`; None if it removes the others."""
    place = TopicPartition(kafka.topic_prefix + ARMS.name, 0, 0)
    values: list[bytes | None] = []
    with closing(Consumer(consumer_options(kafka, "raw", "raw"))) as consumer:
        _, end = consumer.get_watermark_offsets(place, LIMIT_S)
        consumer.assign([place])
        while consumer.position([place])[0].offset < end:
            for message in consumer.consume(500, 0.2):
                if message.key() == key.encode():
                    values.append(message.value())
    return values[-1]


@pytest.mark.slow
def test_an_outage_of_kafka_loses_no_statistics(tmp_path: Path) -> None:
    data = tmp_path / "kafka"
    with Broker(data, java=SHORT_LIVED) as broker:
        kafka = broker.settings
        port = int(broker.bootstrap_servers.rpartition(":")[2])
        log = ControlLog(kafka)
        log.write(control.published(at_ms=now_ms()))
        worker = FakeWorker(kafka, "a", ("rollout",))
        trainer = ScriptedTrainer(log, seed=5, groups_per_step=B)
        with sampling_scheduler(kafka, tmp_path, scheduler__snapshot_s=OFTEN) as running:
            for _ in range(B):
                trainer.go_on()
            broker.stop()
            running.says("no answer from Kafka")
            with Broker(data, port, java=SHORT_LIVED):
                for _ in range(B + 1):
                    trainer.go_on()
                check_admitted(log, trainer.trained + CREDITS)
                running.kill()
                check_all(kafka, log, trainer)
                worker.close()
                log.close()
