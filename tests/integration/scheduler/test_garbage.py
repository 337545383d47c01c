"""Garbage on the scheduler's topics: it decides on, also after a restart, and buries it once."""

import threading
from pathlib import Path

import pytest

from seamlessflow.infra.clock import now_ms
from seamlessflow.infra.errors import NewerRelease
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.scheduler.bootstrap import serve
from seamlessflow.scheduler.settings import (
    PacingSection,
    RunSection,
    SchedulerSection,
    SchedulerSettings,
)
from seamlessflow.schemas import records as r
from seamlessflow.schemas.topics import CONTROL, FLEET
from tests.builders.garbage import append_newer, buried, litter
from tests.builders.records import control, fleet
from tests.builders.scheduler.control_log import LIMIT_S, ControlLog
from tests.waiting import until

BOTH = (CONTROL, FLEET)


class Running:
    """A scheduler in a thread."""

    def __init__(self, kafka: KafkaSettings, tasks: Path) -> None:
        settings = SchedulerSettings(
            kafka=kafka,
            run=RunSection(groups_per_step=2, group_size=2, lag=1, steps=10),
            scheduler=SchedulerSection(standby_s=5),
            pacing=PacingSection(tasks=tasks),
        )
        self._stop = threading.Event()
        self._thread = threading.Thread(target=serve, args=(settings, self._stop))
        self._thread.start()

    def stop(self) -> None:
        """Ask it to end, and wait until it has."""
        self._stop.set()
        self._thread.join(LIMIT_S)
        assert not self._thread.is_alive()


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    path = tmp_path / "tasks.jsonl"
    path.write_text("".join(f'{{"id": "task-{number}"}}\n' for number in range(10)))
    return path


def litter_both(kafka: KafkaSettings) -> dict[str, list[int]]:
    return {
        CONTROL.name: litter(kafka, CONTROL, 0, control.lost()),
        FLEET.name: litter(kafka, FLEET, 0, fleet.heartbeat("w")),
    }


def claims(log: ControlLog, epoch: int) -> r.SchedulerClaimed:
    return log.wait(r.SchedulerClaimed, lambda claim: claim.epoch == epoch)[0]


def test_a_scheduler_goes_on_after_garbage_and_buries_it_once(
    kafka: KafkaSettings, tasks: Path
) -> None:
    log = ControlLog(kafka)
    log.write(control.published(at_ms=now_ms()))
    before = litter_both(kafka)
    first, standby = Running(kafka, tasks), None
    try:
        claims(log, 1)
        standby = Running(kafka, tasks)
        after = litter_both(kafka)
        garbage = {name: before[name] + after[name] for name in before}
        until(
            lambda: all(
                len(buried(kafka, source, 0)) >= len(garbage[source.name]) for source in BOTH
            )
        )
        first.stop()
        claims(log, 2)
        log.write(control.published(version=1, at_ms=now_ms()))
        log.wait(r.SchedulerSnapshot, lambda snapshot: snapshot.epoch == 2)
    finally:
        first.stop()
        if standby:
            standby.stop()
        log.close()
    for topic in BOTH:
        assert buried(kafka, topic, 0) == garbage[topic.name]


def test_a_scheduler_stops_at_a_record_of_a_newer_release(
    kafka: KafkaSettings, tasks: Path
) -> None:
    log = ControlLog(kafka)
    append_newer(kafka, CONTROL, 0)
    settings = SchedulerSettings(kafka=kafka, pacing=PacingSection(tasks=tasks))
    with pytest.raises(NewerRelease, match=r"control\[0\]@0"):
        serve(settings, threading.Event())
    log.close()
