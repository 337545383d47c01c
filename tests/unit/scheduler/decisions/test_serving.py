"""Tasks are given out, and deadlines run, when a rollout process can serve."""

from dataclasses import replace
from functools import reduce
from pathlib import Path

from seamlessflow.scheduler.decisions.decide import View, decide
from seamlessflow.scheduler.settings import PacingSection, RunSection
from seamlessflow.scheduler.state import serving
from seamlessflow.scheduler.state.fleet import Fleet
from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Record
from tests.builders.records import control
from tests.builders.records.fleet import heartbeat
from tests.builders.scheduler.inputs import fleet_of, fold, holds, rules_for, scheduler_settings

RUN = RunSection(groups_per_step=1, group_size=1, min_group_size=1, lag=0, steps=10)
PACING = PacingSection(
    tasks=Path("tasks"), task_timeout_s=10, task_grace_s=1, group_timeout_s=100, max_attempts=3
)
RULES = rules_for(scheduler_settings(RUN, pacing=PACING))
HOUR_MS = 3_600_000
SERVED: list[Record] = [control.claimed(), control.published(0), control.joined("w"), *holds("w")]
PLAYING: list[Record] = [*SERVED, control.admitted("run-0", deadline_ms=100_000)]
LOST = control.lost("w")


def written(*records: Record, now_ms: int, fleet: Fleet | None = None) -> list[Record]:
    """Return what is decided; without a `fleet` all processes that joined are alive."""
    state = fold(*records)
    beats = [
        heartbeat(worker=name, process=kind, incarnation=process.incarnation, at_ms=now_ms)
        for name, worker in state.workers.items()
        for kind, process in worker.processes.items()
    ]
    view = View(state=state, fleet=fleet or fleet_of(*beats, now_ms=now_ms))
    return [record for _, record in decide(view, RULES, now_ms)]


def tasks(*records: Record, now_ms: int) -> list[r.Task]:
    return [record for record in written(*records, now_ms=now_ms) if isinstance(record, r.Task)]


def taken(incarnation: str, at_ms: int) -> list[Record]:
    """Return the records by which the worker's next rollout process takes its role."""
    assigned, acquired = holds("w", number=1)
    assert isinstance(acquired, r.RoleAcquired)
    return [
        control.joined("w", incarnation=incarnation),
        assigned,
        replace(acquired, incarnation=incarnation, at_ms=at_ms),
    ]


def test_a_task_is_given_out_while_a_rollout_process_serves() -> None:
    (task,) = tasks(*PLAYING, now_ms=5)
    assert (task.attempt, task.issued_at_ms, task.deadline_ms) == (0, 0, 10_000)


def test_no_task_is_given_out_and_no_group_expires_once_all_rollout_processes_are_lost() -> None:
    for now_ms in (5, 20_000, HOUR_MS):
        made = written(*PLAYING, LOST, now_ms=now_ms)
        assert not [record for record in made if isinstance(record, r.Task | r.GroupExpired)]


def test_a_process_that_has_only_joined_does_not_serve() -> None:
    joined = control.joined("w", incarnation="i2")
    assert not tasks(*PLAYING, LOST, joined, now_ms=HOUR_MS)


def test_the_time_of_a_group_begins_anew_when_one_serves_again() -> None:
    back = [*PLAYING, LOST, *taken("i2", HOUR_MS)]
    (task,) = tasks(*back, now_ms=HOUR_MS + 5)
    assert (task.attempt, task.issued_at_ms, task.deadline_ms) == (0, HOUR_MS, HOUR_MS + 10_000)
    (again,) = tasks(*back, now_ms=HOUR_MS + 11_000)
    assert (again.attempt, again.issued_at_ms) == (1, HOUR_MS + 11_000)

    def expired(now_ms: int) -> bool:
        return any(isinstance(record, r.GroupExpired) for record in written(*back, now_ms=now_ms))

    assert not expired(HOUR_MS + 99_999)
    assert expired(HOUR_MS + 100_000)


def test_a_sample_that_failed_before_all_were_lost_is_tried_again_with_its_whole_time() -> None:
    failed = control.sample_failed("run-0", 0, 0)
    (task,) = tasks(*PLAYING, failed, LOST, *taken("i2", HOUR_MS), now_ms=HOUR_MS + 5)
    assert (task.attempt, task.deadline_ms) == (1, HOUR_MS + 10_000)


def test_a_process_whose_worker_trains_still_counts() -> None:
    trains = [control.joined("w", "train"), *holds("w", "train", number=1, gang_epoch=1)]
    assert tasks(*PLAYING, *trains, now_ms=5)


def test_one_of_several_that_is_lost_changes_nothing() -> None:
    second = [control.joined("v"), *holds("v", number=2)]
    (task,) = tasks(*PLAYING, *second, LOST, now_ms=5)
    assert task.issued_at_ms == 0


def test_losses_that_are_decided_in_the_same_moment_count() -> None:
    """At the start of a scheduler that goes on with a run whose processes are gone."""
    silent = fleet_of(heartbeat(worker="w", state="ended", at_ms=1))
    made = written(*PLAYING, now_ms=HOUR_MS, fleet=silent)
    assert any(isinstance(record, r.WorkerLost) for record in made)
    assert not any(isinstance(record, r.Task | r.GroupExpired) for record in made)


def released(at_ms: int, worker: str = "w") -> Record:
    return control.released(worker, "rollout", 0, at_ms=at_ms)


def returned(at_ms: int, number: int, worker: str = "w") -> Record:
    return control.acquired(worker, "rollout", number, slot=number, at_ms=at_ms)


STEP: list[Record] = [released(8_000), returned(38_000, 2)]
"""A training of 30 s on the only engine's device, from 8 s on."""


def test_the_time_of_attempts_stands_while_the_only_engine_trains() -> None:
    sleeping = [*PLAYING, released(8_000)]
    (task,) = tasks(*sleeping, now_ms=HOUR_MS)
    assert (task.attempt, task.deadline_ms) == (0, 10_000)
    (task,) = tasks(*PLAYING, *STEP, now_ms=40_999)
    assert task.attempt == 0
    (task,) = tasks(*PLAYING, *STEP, now_ms=41_000)
    assert (task.attempt, task.issued_at_ms, task.deadline_ms) == (1, 41_000, 51_000)


def test_a_repeated_task_is_the_same_record_whatever_stood_meanwhile() -> None:
    assert tasks(*PLAYING, now_ms=5) == tasks(*PLAYING, *STEP, now_ms=40_000)
    again = [released(45_000), returned(90_000, 3)]
    assert tasks(*PLAYING, *STEP, now_ms=41_000) == tasks(*PLAYING, *STEP, *again, now_ms=91_000)
    failed = [*PLAYING, control.sample_failed("run-0", 0, 0, at_ms=5_000)]
    assert tasks(*failed, now_ms=5_000) == tasks(*failed, *STEP, now_ms=40_000)


def test_a_group_whose_engine_trains_does_not_expire_meanwhile() -> None:
    def expired(*records: Record, now_ms: int) -> bool:
        return any(
            isinstance(record, r.GroupExpired) for record in written(*records, now_ms=now_ms)
        )

    assert not expired(*PLAYING, released(8_000), now_ms=HOUR_MS)
    assert not expired(*PLAYING, *STEP, now_ms=129_999)
    assert expired(*PLAYING, *STEP, now_ms=130_000)


def test_time_goes_on_while_another_engine_serves() -> None:
    second = [control.joined("v"), *holds("v", number=1)]
    (task,) = tasks(*PLAYING, *second, released(8_000), now_ms=11_000)
    assert (task.attempt, task.issued_at_ms) == (1, 11_000)


def test_an_engine_that_is_lost_while_it_sleeps_lets_time_begin_anew() -> None:
    back = [*PLAYING, released(8_000), LOST, *taken("i2", HOUR_MS)]
    (task,) = tasks(*back, now_ms=HOUR_MS + 5)
    assert (task.attempt, task.issued_at_ms) == (0, HOUR_MS)


def test_with_several_policies_time_stands_while_one_has_no_engine() -> None:
    def after(*records: Record) -> serving.ServingProcesses:
        return reduce(
            lambda processes, record: serving.apply(processes, record, ("a", "b")),
            records,
            serving.ServingProcesses(),
        )

    of_a = control.acquired("w", "rollout", 0, policy="a", at_ms=0)
    of_b = control.acquired("v", "rollout", 1, policy="b", at_ms=10)
    both = after(of_a, of_b)
    assert (both.stands_ms, both.served_ms(0, 30)) == (None, 20)
    trains = after(of_a, of_b, released(20))
    assert trains.served_ms(0, 30) == 10
    moved = after(of_a, of_b, control.acquired("w", "rollout", 2, policy="b", at_ms=20))
    assert moved.stands_ms == 20
    assert after(of_a, of_b, control.acquired("w", "rollout", 2, policy="", at_ms=20)) != moved


def test_stands_before_the_oldest_group_are_forgotten() -> None:
    assert fold(*PLAYING, *STEP).serving.stands == ((8_000, 38_000),)
    dropped = control.dropped("run-0")
    assert (
        fold(*PLAYING, *STEP, dropped, released(50_000), returned(60_000, 3)).serving.stands == ()
    )
