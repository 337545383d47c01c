"""The scheduler process on a real broker: claims, takeovers, gangs, tasks."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from seamlessflow.infra.clock import now_ms
from seamlessflow.infra.errors import ExitStatus
from seamlessflow.infra.kafka.topics.partitions import partition_of
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.scheduler.bootstrap import serve
from seamlessflow.scheduler.controller import Superseded
from seamlessflow.scheduler.settings import (
    PacingSection,
    RunSection,
    SchedulerSection,
    SchedulerSettings,
)
from seamlessflow.schemas import records as r
from seamlessflow.schemas.topics import TASKS
from tests.builders.own_topics import SMALL
from tests.builders.records import control
from tests.builders.scheduler.control_log import LIMIT_S, ControlLog
from tests.builders.scheduler.fake_worker import FakeWorker

B, SIZE = 2, 2


class RunningScheduler:
    """A scheduler in a thread."""

    def __init__(self, settings: SchedulerSettings) -> None:
        self.error: BaseException | None = None
        self._settings = settings
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="scheduler")
        self._thread.start()

    @property
    def alive(self) -> bool:
        """True until it has ended."""
        return self._thread.is_alive()

    def ended_within(self, seconds: float) -> bool:
        """Return True if it ends in that time."""
        self._thread.join(seconds)
        return not self.alive

    def stop(self) -> None:
        """Ask it to end and wait until it has."""
        self._stop.set()
        self._thread.join(LIMIT_S)
        assert not self.alive

    def _serve(self) -> None:
        try:
            serve(self._settings, self._stop)
        except Superseded as error:
            self.error = error


Start = Callable[..., RunningScheduler]
Join = Callable[..., FakeWorker]


@pytest.fixture
def log(kafka: KafkaSettings) -> Iterator[ControlLog]:
    """Return the log, with weights published."""
    log = ControlLog(kafka)
    log.write(control.published(at_ms=now_ms()))
    yield log
    log.close()


@pytest.fixture
def start(kafka: KafkaSettings, tmp_path: Path) -> Iterator[Start]:
    """Return a function that starts a scheduler with tasks; all are stopped at the end."""
    path = tmp_path / "tasks.jsonl"
    path.write_text("".join(f'{{"id": "task-{number}"}}\n' for number in range(10)))
    begun: list[RunningScheduler] = []

    def start(pacing: Mapping[str, Any] | None = None, **scheduler: object) -> RunningScheduler:
        settings = SchedulerSettings(
            kafka=kafka,
            run=RunSection(groups_per_step=B, group_size=SIZE, lag=1, steps=10),
            scheduler=SchedulerSection.model_validate({"min_dwell_s": 0, **scheduler}),
            pacing=PacingSection(tasks=path, **(pacing or {})),
        )
        begun.append(RunningScheduler(settings))
        return begun[-1]

    yield start
    for running in begun:
        running.stop()


@pytest.fixture
def join(kafka: KafkaSettings) -> Iterator[Join]:
    """Return a function that starts a worker; all are stopped at the end."""
    with ExitStack() as stack:

        def join(name: str, *tags: str, refuses: tuple[str, ...] = ()) -> FakeWorker:
            worker = FakeWorker(kafka, name, tags, refuses)
            stack.callback(worker.close)
            return worker

        yield join


def test_topics_that_wait_for_a_reader_are_reported_with_their_place(
    log: ControlLog, start: Start, join: Join
) -> None:
    """Holds invariant I8."""
    join("a", "rollout")
    start(unread_s=1)

    stalls = {stall.topic: stall for stall in log.wait(r.ProgressStalled, count=2)}
    assert set(stalls) == {"tasks", "trajectories"}
    assert (stalls["tasks"].process, stalls["tasks"].offset) == ("agents", 0)
    assert stalls["tasks"].partition in {
        partition_of(task.group_id, SMALL[TASKS.name].partitions) for task in log.all(r.Task)
    }
    assert stalls["trajectories"].process == "train"


def test_a_run_goes_from_rollout_through_training_back_to_rollout(
    log: ControlLog, start: Start, join: Join
) -> None:
    join("a", "rollout")
    join("b", "rollout", "train")
    start()

    tasks = log.wait(r.Task, count=2 * B * SIZE)
    assert {(task.group_id, task.sample) for task in tasks} == {
        (f"run-{group}", sample) for group in range(2 * B) for sample in range(SIZE)
    }
    slots = log.wait(r.RoleAcquired, lambda acquired: acquired.role == "rollout", count=2)
    assert {acquired.slot for acquired in slots} == {0, 1}

    log.write(control.ready("run-0", at_ms=now_ms()), control.ready("run-1", at_ms=now_ms()))
    log.write(control.batch_ready(at_ms=now_ms()))
    (step,) = log.wait(r.StepStarted)
    assert (step.step, step.workers) == (0, ("b",))

    log.write(*step_over(0, "run-0", "run-1"))
    back = log.wait(
        r.RoleAssigned, lambda assigned: assigned.assignment > 1 and assigned.role == "rollout"
    )
    assert back[0].worker == "b"
    log.wait(r.Task, lambda task: task.group_id == f"run-{3 * B - 1}", count=SIZE)


def test_while_no_trainer_reads_groups_stop_at_the_credits_and_go_on_when_it_is_back(
    log: ControlLog, start: Start, join: Join
) -> None:
    join("a", "rollout")
    join("b", "rollout", "train")
    times = {"task_timeout_s": 0.2, "task_grace_s": 0, "group_timeout_s": 1}
    start({**times, "max_attempts": 3}, snapshot_s=0.2)

    log.wait(r.GroupExpired, count=2 * B)
    # Snapshots show that the scheduler went on deciding.
    log.wait(r.SchedulerSnapshot, count=len(log.all(r.SchedulerSnapshot)) + 3)
    assert len(log.all(r.GroupAdmitted)) == 2 * B
    tasks = [(task.group_id, task.sample, task.attempt) for task in log.all(r.Task)]
    assert len(set(tasks)) == len(tasks) <= 2 * B * SIZE * 3

    log.write(*step_over(0, "run-0", "run-1"))
    log.wait(r.GroupAdmitted, lambda admitted: admitted.group_id == f"run-{3 * B - 1}")
    assert len(log.all(r.GroupAdmitted)) == 3 * B


def test_of_two_schedulers_at_once_one_acts_and_the_other_stops(
    log: ControlLog, start: Start, join: Join
) -> None:
    join("a", "rollout")
    both = start(), start()

    loser = first_to_end(both)
    (winner,) = (running for running in both if running is not loser)
    assert isinstance(loser.error, Superseded)
    tasks = log.wait(r.Task, count=2 * B * SIZE)
    assert {task.group_id for task in tasks} == {f"run-{number}" for number in range(2 * B)}
    assert winner.alive
    newest = max(log.all(r.SchedulerClaimed), key=lambda claim: claim.epoch)
    assert (newest.epoch, newest.scheduler) == (loser.error.newer, loser.error.scheduler)


def first_to_end(schedulers: Sequence[RunningScheduler]) -> RunningScheduler:
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        for running in schedulers:
            if running.ended_within(0.05):
                return running
    raise AssertionError("both go on")


@pytest.mark.parametrize("snapshot", [True, False], ids=["from a snapshot", "from the beginning"])
def test_a_scheduler_that_starts_again_goes_on_and_sends_the_tasks_again(
    log: ControlLog, start: Start, join: Join, snapshot: bool
) -> None:
    join("a", "rollout")
    first = start()
    tasks = log.wait(r.Task, count=2 * B * SIZE)
    first.stop()
    log.write(control.ready("run-0", at_ms=now_ms()))
    if not snapshot:
        log.keep(r.SchedulerSnapshot(epoch=1, control_offset=0, state=b"{}", at_ms=now_ms()))

    start()
    running = 2 * B - 1
    again = log.wait(r.Task, count=(2 * B + running) * SIZE)[len(tasks) :]
    assert {task.group_id for task in again} == {"run-1", "run-2", "run-3"}
    assert set(map(str, again)) <= set(map(str, tasks))
    assert [claim.epoch for claim in log.all(r.SchedulerClaimed)] == [1, 2]
    assert len(log.all(r.GroupAdmitted)) == 2 * B
    assert len(log.all(r.RoleAssigned)) == 1


def test_a_stand_by_acts_once_the_other_is_silent(
    log: ControlLog, start: Start, join: Join
) -> None:
    join("a", "rollout")
    first = start(snapshot_s=0.1)
    log.wait(r.Task, count=2 * B * SIZE)
    start(snapshot_s=0.1, standby_s=1)
    log.wait(r.SchedulerSnapshot, count=len(log.all(r.SchedulerSnapshot)) + 20)
    assert len(log.all(r.SchedulerClaimed)) == 1

    first.stop()
    assert log.wait(r.SchedulerClaimed, count=2)[1].epoch == 2
    assert first.error is None


def test_a_gang_that_is_not_complete_in_time_is_released(
    log: ControlLog, start: Start, join: Join
) -> None:
    join("a", "rollout")
    join("b", "rollout", "train")
    join("c", "rollout", "train", refuses=("train",))
    start(gang_size=2, gang_timeout_s=0.5)
    log.wait(r.RoleAcquired, count=3)

    log.write(control.batch_ready(at_ms=now_ms()))
    (late,) = log.wait(r.AssignmentTimedOut)
    assert late.worker == "c"
    gang = [assigned for assigned in log.all(r.RoleAssigned) if assigned.role == "train"]
    number = max(assigned.assignment for assigned in gang[:2])
    back = log.wait(r.RoleAssigned, lambda assigned: assigned.assignment > number, count=2)
    assert {(assigned.worker, assigned.role) for assigned in back[:2]} == {
        ("b", "rollout"),
        ("c", "rollout"),
    }
    assert not log.all(r.StepStarted)


def test_a_worker_without_a_sign_of_life_is_lost(log: ControlLog, start: Start, join: Join) -> None:
    worker = join("a", "rollout")
    start(heartbeat_timeout_s=1)
    log.wait(r.RoleAcquired)
    worker.stop_heartbeats()

    (lost,) = log.wait(r.WorkerLost)
    assert (lost.worker, lost.process, lost.reason) == ("a", "rollout", "no_heartbeat")


def test_the_process_ends_in_order_when_asked_to_and_says_that_the_run_is_not_finished(
    log: ControlLog, kafka: KafkaSettings
) -> None:
    environment = {
        **os.environ,
        "SEAMLESSFLOW_KAFKA__BOOTSTRAP_SERVERS": kafka.bootstrap_servers,
        "SEAMLESSFLOW_KAFKA__TOPIC_PREFIX": kafka.topic_prefix,
    }
    command = [sys.executable, "-m", "seamlessflow.scheduler"]
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as process:
        try:
            log.wait(r.SchedulerClaimed)
            log.wait(r.SchedulerSnapshot)
            process.send_signal(signal.SIGTERM)
            _, words = process.communicate(timeout=LIMIT_S)
        finally:
            process.kill()
    assert process.returncode == ExitStatus.PASSING, words
    assert "acts as of epoch 1" in words


def step_over(step: int, *groups: str) -> list[r.Record]:
    now = {"at_ms": now_ms()}
    return [
        control.committed(step, groups, **now),
        *(control.consumed(group, step, **now) for group in groups),
        control.published(step + 1, **now),
        control.completed(step, **now),
    ]
