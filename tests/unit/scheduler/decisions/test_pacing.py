"""Pacing: admissions, deadlines, tasks and attempts."""

from fractions import Fraction
from pathlib import Path

from seamlessflow.infra.worker.judged_rewards import SharedRewardsSection
from seamlessflow.scheduler.decisions import pacing
from seamlessflow.scheduler.settings import PacingSection, RunSection
from seamlessflow.scheduler.tasks.mixture import TaskSets, with_forks
from seamlessflow.scheduler.tasks.source import TaskRow, listed
from seamlessflow.schemas.records import Record
from tests.builders.records import control
from tests.builders.records.forks import forked
from tests.builders.scheduler.inputs import fold, holds, scheduler_settings, task_source

RUN = RunSection(groups_per_step=2, group_size=2, lag=1, steps=10)
PACING = PacingSection(
    tasks=Path("tasks"),
    task_timeout_s=10,
    task_grace_s=1,
    group_timeout_s=100,
    max_attempts=3,
    refill=1,
)
SETTINGS = scheduler_settings(RUN, pacing=PACING)
SOURCE = task_source()
SETS = TaskSets(SOURCE)
STARTED: list[Record] = [control.claimed(), control.published(0), control.joined("w"), *holds("w")]


def groups(*records: Record, now_ms: int = 0) -> list[str]:
    state = fold(*STARTED, *records)
    admissions = pacing.admissions(state, SETTINGS, SOURCE, now_ms)
    return [group.group_id for group in admissions]


def attempts(
    *records: Record, now_ms: int = 0, issued: dict[str, dict[int, int]] | None = None
) -> list[tuple[str, int, int]]:
    ledger = fold(*STARTED, *records).first.ledger
    tasks = pacing.tasks(ledger, issued or {}, SETTINGS, SETS, now_ms)
    return [(task.group_id, task.sample, task.attempt) for task in tasks]


def test_nothing_is_admitted_before_a_worker_rolled_out() -> None:
    assert not pacing.admissions(fold(control.claimed()), SETTINGS, SOURCE, 0)


def test_as_many_groups_are_admitted_as_the_lag_allows() -> None:
    assert groups() == ["run-0", "run-1", "run-2", "run-3"]


def test_running_and_ready_groups_hold_their_credits() -> None:
    assert groups(control.admitted("run-0"), control.ready("run-0"), control.admitted("run-1")) == [
        "run-2",
        "run-3",
    ]


HOUR_MS = 3_600_000
FIRST = ["run-0", "run-1", "run-2", "run-3"]
ADMITTED: list[Record] = [control.admitted(name, deadline_ms=100_000) for name in FIRST]


def test_while_no_trainer_reads_no_group_begins_beyond_the_credits_however_long() -> None:
    """Its samples are then tried again, since only a trainer reports a group as ready."""
    expired = pacing.expirations(fold(*STARTED, *ADMITTED), "policy", HOUR_MS)
    assert [record.group_id for record in expired] == FIRST

    for now_ms in (0, 10_000, 100_000, HOUR_MS, 24 * HOUR_MS):
        assert groups(*ADMITTED, now_ms=now_ms) == []
        assert groups(*ADMITTED, *expired, now_ms=now_ms) == []
        tried = attempts(*ADMITTED, now_ms=now_ms)
        assert len(tried) <= len(FIRST) * RUN.group_size
        assert all(attempt < PACING.max_attempts for _, _, attempt in tried)
    assert attempts(*ADMITTED, *expired, now_ms=24 * HOUR_MS) == []


def test_a_trainer_that_comes_back_to_expired_groups_returns_their_credits_step_by_step() -> None:
    away = [*ADMITTED, *pacing.expirations(fold(*STARTED, *ADMITTED), "policy", HOUR_MS)]
    back = [*away, *(control.ready(name) for name in FIRST)]
    stepped = [*back, control.committed(0, FIRST[:2]), control.published(1)]

    assert groups(*back, now_ms=HOUR_MS) == []
    assert groups(*stepped, now_ms=HOUR_MS) == ["run-4", "run-5"]
    dropped = [control.dropped(name, "too_few") for name in FIRST[2:]]
    assert groups(*stepped, *dropped, now_ms=HOUR_MS) == ["run-4", "run-5", "run-6", "run-7"]


def test_without_lag_nothing_is_admitted_until_the_new_weights_are_out() -> None:
    synchronous = scheduler_settings(RUN.model_copy(update={"lag": 0}), pacing=PACING)
    before = [
        *STARTED,
        control.admitted("run-0"),
        control.admitted("run-1"),
        control.ready("run-0"),
        control.ready("run-1"),
        control.committed(0, ["run-0", "run-1"]),
        control.consumed("run-0"),
        control.consumed("run-1"),
    ]

    assert not pacing.admissions(fold(*before), synchronous, SOURCE, 0)
    after = fold(*before, control.published(1))
    assert len(pacing.admissions(after, synchronous, SOURCE, 0)) == 2


def test_extra_groups_have_credits_of_their_own_that_return_with_their_own_step() -> None:
    pacing_section = PACING.model_copy(update={"extra_groups": 0.5})
    synchronous = RUN.model_copy(update={"lag": 0})
    settings = scheduler_settings(synchronous, pacing=pacing_section)

    def due(*records: Record) -> int:
        return len(pacing.admissions(fold(*STARTED, *records), settings, SOURCE, 0))

    assert due() == 3
    begun = [control.admitted(f"run-{number}") for number in range(3)]
    ready = [control.ready("run-0"), control.ready("run-2")]
    step = [control.committed(0, ["run-0", "run-2"]), control.published(1)]
    assert due(*begun, *ready) == 0
    assert due(*begun, *ready, *step) == 2, "run-1 goes on and keeps its credit"
    assert due(control.committed(8)) == 2, "the last step needs no more"


def test_nothing_is_admitted_that_no_step_is_left_for() -> None:
    assert groups(control.committed(8)) == ["run-0", "run-1"]
    assert groups(control.committed(9)) == []
    assert groups(control.skipped(5), control.committed(9)) == ["run-0", "run-1"]


def test_a_late_group_is_made_up_for_in_the_last_step() -> None:
    last = [control.committed(8), control.admitted("run-0"), control.admitted("run-1")]

    assert groups(*last, now_ms=10_999) == []
    assert groups(*last, now_ms=11_000) == ["run-2", "run-3"]


def test_dropped_groups_are_replaced_up_to_the_refill_of_a_step() -> None:
    lost: list[Record] = []
    for number in range(5):
        lost += [control.admitted(f"run-{number}"), control.dropped(f"run-{number}")]

    assert groups(*lost[:4]) == ["run-2", "run-3", "run-4", "run-5"]
    assert groups(*lost) == ["run-5"]
    assert len(groups(*lost, control.completed(0))) == 4
    assert len(groups(*lost, now_ms=300_000)) == 3


def test_a_task_that_failed_outside_the_policy_comes_first() -> None:
    state = fold(*STARTED, control.admitted("run-0", "task-3"), control.dropped("run-0", "failed"))
    admissions = pacing.admissions(state, SETTINGS, SOURCE, 0)

    assert [group.task_id for group in admissions] == ["task-3", "task-1", "task-2", "task-3"]


def test_a_group_past_its_deadline_is_told_once() -> None:
    before = [*STARTED, control.admitted("run-0", deadline_ms=50)]

    assert not pacing.expirations(fold(*before), "policy", 49)
    (expired,) = pacing.expirations(fold(*before), "policy", 50)
    assert not pacing.expirations(fold(*before, expired), "policy", 51)


def test_a_ready_group_does_not_expire() -> None:
    state = fold(*STARTED, control.admitted("run-0", deadline_ms=50), control.ready("run-0"))

    assert not pacing.expirations(state, "policy", 60)


def test_an_admitted_group_gets_a_task_a_sample() -> None:
    assert attempts(control.admitted("run-0")) == [("run-0", 0, 0), ("run-0", 1, 0)]


def test_an_issued_task_is_not_issued_again() -> None:
    assert not attempts(control.admitted("run-0"), issued={"run-0": {0: 0, 1: 0}})


def test_a_group_whose_task_has_left_the_source_is_not_issued_and_expires() -> None:
    """The run was resumed with another file of tasks."""
    admitted = control.admitted("run-0", "gone", deadline_ms=50)
    assert not attempts(admitted)
    assert attempts(admitted, control.admitted("run-1")) == [("run-1", 0, 0), ("run-1", 1, 0)]
    (expired,) = pacing.expirations(fold(*STARTED, admitted), "policy", 50)
    assert expired.group_id == "run-0"


def test_a_task_is_the_same_record_whenever_it_is_issued() -> None:
    ledger = fold(*STARTED, control.admitted("run-0", at_ms=5)).first.ledger

    now, later = (pacing.tasks(ledger, {}, SETTINGS, SETS, at) for at in (5, 5_000))
    assert now == later


def test_a_failed_sample_is_issued_again_at_once() -> None:
    issued = {"run-0": {0: 0, 1: 0}}
    failed = control.sample_failed("run-0", 1, at_ms=500)

    assert attempts(control.admitted("run-0"), failed, issued=issued) == [("run-0", 1, 1)]


def test_a_sample_that_the_settings_leave_out_is_never_issued_again() -> None:
    issued = {"run-0": {0: 0, 1: 0}}
    failed = control.sample_failed("run-0", 1, at_ms=500, cause="setting")

    assert attempts(control.admitted("run-0"), failed, issued=issued) == []
    later = attempts(control.admitted("run-0"), failed, issued=issued, now_ms=11_000)
    assert later == [("run-0", 0, 1)]


def test_a_sample_that_a_judge_left_out_is_never_issued_again() -> None:
    issued = {"run-0": {0: 0, 1: 0}}
    failed = control.sample_failed("run-0", 1, at_ms=500, cause="judge")

    assert attempts(control.admitted("run-0"), failed, issued=issued) == []


def test_the_wait_for_judges_is_time_of_a_session_and_of_its_group() -> None:
    rewards = SharedRewardsSection(judges={"kind": {}}, wait_s=1_000)
    settings = SETTINGS.model_copy(update={"rewards": rewards})
    ledger = fold(*STARTED, control.admitted("run-0")).first.ledger
    issued = {"run-0": {0: 0, 1: 0}}

    def due(now_ms: int) -> int:
        return len(pacing.tasks(ledger, issued, settings, SETS, now_ms))

    assert [due(now_ms) for now_ms in (11_000, 1_010_999, 1_011_000)] == [0, 0, 2]
    (group, *_) = pacing.admissions(fold(*STARTED), settings, SOURCE, 7)
    assert group.deadline_ms == 7 + 1_100_000


def test_samples_never_heard_of_are_issued_again_after_their_time() -> None:
    issued = {"run-0": {0: 0, 1: 0}}

    assert not attempts(control.admitted("run-0"), now_ms=10_999, issued=issued)
    again = attempts(control.admitted("run-0"), now_ms=11_000, issued=issued)
    assert again == [("run-0", 0, 1), ("run-0", 1, 1)]


def test_a_sample_is_tried_so_often_and_no_more() -> None:
    failed = [control.sample_failed("run-0", 1, attempt) for attempt in range(3)]

    assert not attempts(control.admitted("run-0"), *failed, issued={"run-0": {0: 0, 1: 2}})
    assert not attempts(control.admitted("run-0"), now_ms=90_000, issued={"run-0": {0: 2, 1: 2}})


def test_an_agent_may_not_run_past_its_groups_deadline() -> None:
    ledger = fold(*STARTED, control.admitted("run-0", deadline_ms=400)).first.ledger

    assert {t.deadline_ms for t in pacing.tasks(ledger, {}, SETTINGS, SETS, 0)} == {400}


def test_a_fork_has_its_own_group_size_and_its_tasks_carry_its_beginning() -> None:
    fork = TaskRow("f", b'{"id":"a"}', {}, samples=3, fork=forked())
    source = with_forks([(task_source(), Fraction(1))], listed([fork]), Fraction(1, 2))
    state = fold(*STARTED)

    due = pacing.admissions(state, SETTINGS, source, 0)
    assert [group.task_id for group in due] == ["task-0", "f", "task-1", "f"]
    ledger = fold(*STARTED, *due[1:3]).first.ledger
    issued = pacing.tasks(ledger, {}, SETTINGS, TaskSets(source), 0)
    assert [(t.task_id, t.sample, t.group_size) for t in issued] == [
        *(("f", sample, 3) for sample in range(3)),
        *(("task-1", sample, 2) for sample in range(2)),
    ]
    assert [t.fork for t in issued] == [*[forked()] * 3, None, None]
    assert issued[0].payload == b'{"id":"a"}'


def test_a_group_of_one_fork_asks_for_no_more_than_one_sample() -> None:
    source = listed([TaskRow("f", b"{}", {}, samples=1, fork=forked())])
    (first, *_) = pacing.admissions(fold(*STARTED), SETTINGS, source, 0)

    (task,) = pacing.tasks(fold(*STARTED, first).first.ledger, {}, SETTINGS, TaskSets(source), 0)
    assert (task.group_size, task.min_group_size) == (1, 1)
