"""The journal: it catches up with `control` and `fleet`, and waits for its own records."""

import logging

import pytest

from seamlessflow.infra.errors import KafkaUnavailable
from seamlessflow.infra.kafka.client import BEGINNING
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.scheduler.journal import CONTROL_LOG, FLEET_LOG, Journal
from seamlessflow.scheduler.state.state import to_json
from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Record
from tests.builders.records import control
from tests.builders.records.fleet import heartbeat
from tests.builders.records.tasks import task
from tests.builders.scheduler.inputs import arms_fold, fold
from tests.builders.scheduler.scripted_reader import REMOVAL, ScriptedReader

NOW = 1_000_000
READ_BACK_S = 10


class Time:
    """A clock that moves only when it is set."""

    def __init__(self) -> None:
        self.now_ms = NOW

    def __call__(self) -> int:
        return self.now_ms


def read(script: ScriptedReader, time: Time | None = None) -> Journal:
    journal = Journal(KafkaSettings(), script, time or Time(), READ_BACK_S)
    journal.catch_up()
    return journal


def pass_time(journal: Journal, time: Time, seconds: int) -> None:
    """Poll once a second without any record."""
    for _ in range(seconds):
        time.now_ms += 1_000
        journal.poll(0)


def test_records_behind_the_end_that_come_with_the_last_ones_are_taken_in() -> None:
    script = ScriptedReader(control=[[control.claimed(1), control.claimed(2, "b")]], control_end=1)

    assert read(script).view.state.epoch == 2


def test_heartbeats_read_at_start_count_as_of_when_they_were_written() -> None:
    beats = [heartbeat("w", at_ms=1), heartbeat("w", at_ms=1_001)]

    (latest,) = read(ScriptedReader(fleet=beats)).view.fleet.heartbeats.values()
    assert latest.seen_ms == 1_001


def test_heartbeats_read_later_count_as_of_now() -> None:
    script = ScriptedReader(fleet=[heartbeat("w", at_ms=1)])
    journal = read(script)
    script.later(FLEET_LOG, heartbeat("w", at_ms=2))
    journal.poll(0)

    (latest,) = journal.view.fleet.heartbeats.values()
    assert latest.seen_ms == NOW


def snapshot(offset: int, *records: Record) -> r.SchedulerSnapshot:
    state = to_json(fold(control.claimed(7), *records))
    return r.SchedulerSnapshot(epoch=7, control_offset=offset, state=state, at_ms=0)


def test_a_snapshot_saves_reading_what_it_covers() -> None:
    script = ScriptedReader(fleet=[snapshot(4)], control_end=5)

    assert read(script).view.state.epoch == 7
    assert script.started[CONTROL_LOG] == 5


def test_a_snapshot_of_another_log_is_not_used() -> None:
    script = ScriptedReader(control=[[control.claimed(1)]], fleet=[snapshot(4)])

    assert read(script).view.state.epoch == 1
    assert script.started[CONTROL_LOG] == BEGINNING


def test_what_was_written_is_complete_when_it_was_read_back() -> None:
    script = ScriptedReader()
    journal = read(script)
    mine = control.claimed(1, "me")
    journal.note_sent([mine])
    script.later(CONTROL_LOG, control.claimed(1, "other"))
    journal.poll(0)
    assert not journal.complete

    script.later(CONTROL_LOG, mine)
    journal.poll(0)
    assert journal.complete


def test_what_is_not_read_back_in_time_while_kafka_answers_is_an_error() -> None:
    time = Time()
    journal = read(ScriptedReader(), time)
    journal.note_sent([control.claimed()])

    with pytest.raises(KafkaUnavailable):
        pass_time(journal, time, READ_BACK_S + 5)


def test_while_kafka_is_away_own_records_are_waited_for() -> None:
    script, time = ScriptedReader(), Time()
    journal = read(script, time)
    journal.note_sent([control.claimed()])
    script.away = True
    pass_time(journal, time, 10 * READ_BACK_S)
    script.away = False
    pass_time(journal, time, READ_BACK_S)
    assert not journal.complete

    script.later(CONTROL_LOG, control.claimed())
    journal.poll(0)
    assert journal.complete


def test_nothing_can_be_decided_while_kafka_is_away(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    script, time = ScriptedReader(), Time()
    journal = read(script, time)
    script.away = True
    pass_time(journal, time, 30)
    assert not journal.complete

    script.away = False
    pass_time(journal, time, 3)
    assert journal.complete
    assert [record.message for record in caplog.records] == [
        "no answer from Kafka at 127.0.0.1:9092: decisions wait for it",
        "Kafka answers again after 31.0 s: decisions go on",
    ]


def test_a_fleet_that_writes_nothing_is_no_outage() -> None:
    time = Time()
    journal = read(ScriptedReader(), time)
    pass_time(journal, time, 30)

    assert journal.complete
    assert journal.view.contact.since_ms == 0


def test_a_leader_is_not_absent_while_kafka_is_away() -> None:
    script, time = ScriptedReader(control=[[control.claimed(1, at_ms=NOW)]]), Time()
    journal = read(script, time)
    script.away = True
    pass_time(journal, time, 30)
    assert journal.leader_absent_ms == 0

    script.away = False
    pass_time(journal, time, 1)
    assert journal.leader_absent_ms == 0
    pass_time(journal, time, 30)
    assert journal.leader_absent_ms >= 27_000


def test_issued_tasks_of_groups_that_ended_are_forgotten() -> None:
    issued = task(group_id="run-0", sample=1)
    script = ScriptedReader(control=[[control.claimed(), control.admitted("run-0")]])
    journal = read(script)
    journal.note_issued([issued])
    assert journal.view.issued == {"run-0": {1: 0}}

    script.later(CONTROL_LOG, control.dropped("run-0"))
    journal.poll(0)
    journal.note_issued([])
    assert journal.view.issued == {}


RESULTS: tuple[Record, ...] = (
    control.claimed(7),
    control.admitted("run-0", "task-0", epoch=7, sampler_figures={"pass": 1.0}),
    control.ready("run-0", returns=(1.0, 0.0), turns=(2, 3)),
    control.admitted("run-1", "task-1", epoch=7),
    control.completed(0),
    control.admitted("run-2", "task-0", epoch=7),
    control.ready("run-2", returns=(1.0, 1.0), turns=(4, 1)),
    control.ready("run-1", returns=(0.0, 0.0), turns=(1, 1)),
)
LAST = len(RESULTS) - 1


def arms_at(offset: int, epoch: int = 7) -> list[r.ArmSnapshot]:
    """Return the statistics that a scheduler writes which has read so far."""
    return list(arms_fold(RESULTS[: offset + 1]).snapshots(epoch, offset))


def snapshot_at(offset: int) -> list[Record]:
    return [snapshot(offset, *RESULTS[1 : offset + 1])] if offset >= 0 else []


def test_statistics_come_from_their_topic_where_a_snapshot_covers_the_results() -> None:
    script = ScriptedReader(control=[RESULTS], fleet=snapshot_at(LAST), arms=arms_at(LAST))
    journal = read(script)

    assert script.started == {FLEET_LOG: BEGINNING, CONTROL_LOG: LAST + 1}
    assert journal.view.arms.by_name == arms_fold(RESULTS).by_name
    assert not journal.view.arms.changed


@pytest.mark.parametrize("covered", range(-1, LAST + 1))
def test_no_result_counts_twice_or_never_wherever_snapshot_and_statistics_end(covered: int) -> None:
    """The statistics are written before the snapshot, so they never cover less than it does."""
    for restored in range(-1, covered + 1):
        arms = arms_at(covered)
        journal = read(ScriptedReader(control=[RESULTS], fleet=snapshot_at(restored), arms=arms))
        assert journal.view.arms.by_name == arms_fold(RESULTS).by_name, restored


def test_statistics_of_an_offset_that_control_does_not_have_are_of_another_log() -> None:
    journal = read(ScriptedReader(control=[RESULTS[:3]], arms=arms_at(LAST)))

    assert journal.view.arms.by_name == arms_fold(RESULTS[:3]).by_name


def test_the_statistics_that_cover_most_count_in_whatever_order_they_stand() -> None:
    older, newer = arms_at(2, epoch=8), arms_at(LAST, epoch=7)

    for arms in ([*older, *newer], [*newer, *older]):
        journal = read(ScriptedReader(control=[RESULTS], fleet=snapshot_at(LAST), arms=arms))
        assert journal.view.arms.by_name == arms_fold(RESULTS).by_name


def test_statistics_that_another_scheduler_writes_while_they_are_read_count() -> None:
    """Compaction may have removed the older ones already."""
    script = ScriptedReader(
        control=[RESULTS[:3]],
        fleet=snapshot_at(2),
        arms=arms_at(LAST),
        while_arms_are_read={CONTROL_LOG: RESULTS[3:]},
    )

    assert read(script).view.arms.by_name == arms_fold(RESULTS).by_name


def test_a_snapshot_that_comes_while_statistics_are_read_may_cover_more_than_they_do() -> None:
    later = {CONTROL_LOG: RESULTS[3:], FLEET_LOG: snapshot_at(LAST)}
    script = ScriptedReader(
        control=[RESULTS[:3]], fleet=snapshot_at(2), arms=arms_at(2), while_arms_are_read=later
    )

    assert read(script).view.arms.by_name == arms_fold(RESULTS).by_name


def test_statistics_are_read_at_once_although_removals_stand_at_the_end() -> None:
    """Workers send heartbeats meanwhile."""
    arms = [*arms_at(LAST), REMOVAL, REMOVAL]
    script = ScriptedReader(control=[RESULTS], fleet=snapshot_at(LAST), arms=arms)
    script.beat = heartbeat("w")

    assert read(script).view.arms.by_name == arms_fold(RESULTS).by_name
